"""Two processes under the names of neuronx_distributed, on the CPU and on the device "xla"; torch is the reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import warm

CASES = (
    *("groups", "bad_degrees", "layers_equal_one_process", "losses", "shared_heads", "training_equals_one_process"),
    *("configurations", "meta_initialization", "checkpoints", "random_states", "optimizer_of_low_precision"),
)
DEVICES = {"cpu": {"NXD_CPU_MODE": "1"}, "xla": {"OPTIMUM_NEURON_INSTANCE": "inf2.48xlarge"}}


@pytest.fixture(scope="module", params=DEVICES)
def results(enabled: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    module = "tests.neuronx_distributed.ranks"
    result = warm.run_ranks("-m", module, str(folder), request.param, *CASES, num_processes=2, **DEVICES[request.param])
    assert result.returncode == 0, result
    one, other = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
    return {case: one[case] if one[case] != "ok" else other[case] for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_two_processes(results: dict[str, str], case: str) -> None:
    assert results[case] == "ok", results[case]
