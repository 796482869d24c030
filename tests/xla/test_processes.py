"""Several processes with the device "xla": two for all cases, started once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import warm

CASES = (
    *("all_reduce", "gather", "scatter", "exchange", "groups", "host", "gradients", "zero"),
    *("padded", "differing", "torch_groups", "data_parallel", "ending"),
)


@pytest.fixture(scope="module")
def results(enabled: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    variables = {"OPTIMUM_NEURON_INSTANCE": warm.SEPARATE_INSTANCE}
    result = warm.run_ranks("-m", "tests.xla.ranks", str(folder), *CASES, num_processes=2, **variables)
    assert result.returncode == 0, result
    one, other = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    return {case: one[case] if one[case] != "ok" else other[case] for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_two_processes(results: dict[str, str], case: str) -> None:
    assert results[case] == "ok", results[case]
