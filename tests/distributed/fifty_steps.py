"""Losses of 50 steps on two and four simulated cores, and of transformers' `Trainer` on the CPU.

    python -m tests.distributed.fifty_steps

prints the largest difference for each layout; the exit code is 1 where one is above 1e-4. The tests take fewer steps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.distributed.test_layouts import TOLERANCE, run_cases

NUM_STEPS = 50
LAYOUTS = {2: ("dp", "zero_1", "fsdp", "tp", "tied-tp", "bert-tp", "pp"), 4: ("tp", "tp_zero_1", "pp", "tp_pp")}
"""Cases of `layouts.py` by number of processes."""


def main() -> int:
    """Compare; return the exit code."""
    folder = Path(tempfile.mkdtemp())
    reference = run_cases(folder, 0, NUM_STEPS, ("tp", "tied-tp", "bert-tp"))
    failed = False
    for num_processes, cases in LAYOUTS.items():
        found = run_cases(folder, num_processes, NUM_STEPS, cases)
        for case in cases:
            theirs = reference[case if case in reference else "tp"]
            assert len(found[case]) == len(theirs) == NUM_STEPS
            worst = max(abs(a - b) for a, b in zip(found[case], theirs, strict=True))
            failed |= not worst <= TOLERANCE
            print(f"RESULT {num_processes} processes, {case}: largest difference {worst:.2e}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
