"""Losses of 50 steps on two and four simulated cores, and of transformers' `Trainer` on the CPU.

    python -m tests.distributed.fifty_steps

prints the largest difference for each layout; the exit code is 1 where one is above 1e-4. The tests take fewer steps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests import warm
from tests.distributed.test_layouts import FOUR, REFERENCES, TWO, run_cases
from tests.trainer.fifty_steps import NUM_STEPS, differs

LAYOUTS = {2: (*TWO, "compiled-small-sp"), 4: FOUR}
"""Cases of `layouts.py` by number of processes; 16-bit cases are separate."""


def main() -> int:
    """Compare; return the exit code."""
    folder = Path(tempfile.mkdtemp())
    warm.prepare(folder)
    reference = run_cases(folder, 0, NUM_STEPS, REFERENCES)
    failed = False
    for num_processes, cases in LAYOUTS.items():
        wide = tuple(case for case in cases if not case.startswith("bfloat16"))
        results = run_cases(folder, num_processes, NUM_STEPS, wide)
        for case in wide:
            kind = case.removeprefix("compiled-").rpartition("-")[0]
            result = results[case]["losses"] if case.startswith("compiled-") else results[case]
            actual, expected = (losses[:NUM_STEPS] for losses in (result, reference[f"{kind}-tp" if kind else "tp"]))
            failed |= differs(f"{num_processes} processes, {case}", actual, expected)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
