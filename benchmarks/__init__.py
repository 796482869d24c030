"""Benchmarks: ours and the alternative in turn, in one run, with medians and ratios.

    python -m benchmarks                 # all of them, on SmolLM2
    python -m benchmarks decode --json   # one of them, as JSON

Every module has `run(settings) -> list[Row]`. Figures are this host's; the target is simulated.
"""
