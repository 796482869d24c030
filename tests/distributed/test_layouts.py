"""Losses of distributed runs are those of transformers' Trainer on the CPU; the processes are started once for all cases.

`python -m tests.distributed.fifty_steps` takes 50 steps.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NUM_STEPS = 3
TOLERANCE = 1e-4

TWO = ("dp", "zero_1", "fsdp", "tp", "tied-tp", "bert-tp", "pp")
"""Cases of two processes."""
FOUR = ("tp",)
"""Of four: two that share layers, twice."""


def launch(folder: Path, num_processes: int, *arguments: str, module: str = "tests.distributed.layouts") -> Any:
    """Run the module in processes with a core each, or, with 0, in one without."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(num_processes)]
    return subprocess.run(
        [sys.executable, *(launcher if num_processes else []), "-m", module, str(folder), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "trn1.32xlarge"},
    )


def run_cases(folder: Path, num_processes: int, num_steps: int, cases: tuple[str, ...]) -> dict[str, Any]:
    """What rank 0 found in each case."""
    done = launch(folder, num_processes, str(num_steps), *cases)
    assert done.returncode == 0, done.stderr[-5000:]
    found: dict[str, Any] = json.loads((folder / f"losses-{num_processes}.json").read_text())
    return found


@pytest.fixture(scope="module")
def reference(built, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("one"), 0, NUM_STEPS, ("tp", "tied-tp", "bert-tp"))


@pytest.fixture(scope="module")
def two(built, tmp_path_factory):
    return run_cases(tmp_path_factory.mktemp("two"), 2, NUM_STEPS, TWO)


@pytest.mark.parametrize("case", TWO)
def test_two_processes(two, reference, case):
    expected = reference[case if case in reference else "tp"]
    assert len(expected) == NUM_STEPS
    assert two[case] == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("case", FOUR)
def test_four_processes(built, reference, tmp_path, case):
    found = run_cases(tmp_path, 4, NUM_STEPS, FOUR)
    assert found[case] == pytest.approx(reference["tp"], abs=TOLERANCE)
