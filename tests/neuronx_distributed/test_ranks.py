"""Two processes under the names of neuronx_distributed, on the CPU and on the device "xla"; torch is the reference."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm

OF_DEVICE = (
    "groups",
    "pipelines",
    "pipelines_of_configurations",
    "pipelines_of_transformers",
    "meta_initialization",
    "training_equals_one_process",
    "checkpoints",
    "low_rank",
    "low_rank_of_stages",
    "random_states",
    "exchanges_without_gradients",
    "divided_experts",
    "sent_tokens",
    "bad_experts",
    "trained_experts",
)
CASES = {
    "cpu": (
        *("bad_degrees", "layers_equal_one_process", "losses", "mixtures", "shared_heads", "convolutions"),
        *("configurations", "optimizer_of_low_precision", *OF_DEVICE),
    ),
    "xla": (*OF_DEVICE, "sharded_states"),
}
VARIABLES = {"cpu": {"NXD_CPU_MODE": "1"}, "xla": {"OPTIMUM_NEURON_INSTANCE": "inf2.48xlarge"}}


@pytest.mark.full(days=2)
def test_four_processes(enabled: None, tmp_path: Path) -> None:
    command = ("-m", "tests.neuronx_distributed.ranks", str(tmp_path), "xla", "four_ranks", "trained_experts")
    result = warm.run_ranks(*command, num_processes=4, **VARIABLES["xla"])
    assert result.returncode == 0, result
    for rank in range(4):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert set(found.values()) == {"ok"}, found


@pytest.mark.parametrize("case", ["lightning_begins", "lightning_trainer"])
@pytest.mark.parametrize("device", VARIABLES)
def test_lightning(enabled: None, tmp_path: Path, device: str, case: str) -> None:
    pytest.importorskip("lightning.pytorch", reason="pip install lightning")
    command = ("-m", "tests.neuronx_distributed.ranks", str(tmp_path), device, case)
    result = warm.run_ranks(*command, num_processes=2, **VARIABLES[device])
    assert result.returncode == 0, result
    for rank in range(2):
        text = json.loads((tmp_path / f"{rank}.json").read_text())[case]
        assert text == "ok", text


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, enabled: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, str]]:
    """Start two processes once for each device, with the cases of the day, or those that -k selects."""
    items = [item for item in request.session.items if getattr(item, "originalname", "") == "test_two_processes"]
    params = [item.callspec.params for item in items if item.path == request.path]

    @functools.cache
    def of(device: str) -> dict[str, str]:
        folder: Path = tmp_path_factory.mktemp(device)
        cases = [one["case"] for one in params if one["device"] == device]
        command = ("-m", "tests.neuronx_distributed.ranks", str(folder), device, *cases)
        result = warm.run_ranks(*command, num_processes=2, **VARIABLES[device])
        assert result.returncode == 0, result
        one, other = (json.loads((folder / f"{rank}.json").read_text()) for rank in range(2))
        return {case: one[case] if one[case] != "ok" else other[case] for case in cases}

    return of


@pytest.mark.full(days=2)
@pytest.mark.parametrize(("device", "case"), [(device, case) for device in CASES for case in CASES[device]])
def test_two_processes(results: Callable[[str], dict[str, str]], device: str, case: str) -> None:
    assert results(device)[case] == "ok", results(device)[case]
