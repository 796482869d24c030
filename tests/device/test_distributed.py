"""torch.distributed with the backend "neuron": processes with a simulated core each, started once for all cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import warm
from tests.device.conftest import needs_compiler

CASES = (
    *("backend", "all_reduce", "reduced_in_bfloat16_and_averaged", "gathers", "reduce_scatters", "all_to_all"),
    *("rooted", "point_to_point", "objects", "coalesced", "groups_and_host_tensors", "functional"),
    *("ddp", "fsdp1", "fsdp2", "fsdp2_without_division", "fsdp2_on_meta", "hsdp", "tensor_parallel"),
    *("dtensor", "dtensor_random", "checkpoint", "compiled_ddp", "compiled_fsdp2", "compiled_collective"),
    *("rotary_fsdp2", "rotary_tensor_parallel", "compiled_rotary_fsdp2", "compiled_rotary_tensor_parallel"),
)
WARM = ("warm_ddp", "warm_collective")
"""Cases of graphs that are host code in torch's caches."""
FOUR = ("backend", "ddp", "fsdp2", "tensor_parallel")
"""Cases that run with four processes too."""
RANK_VARIABLES = {2: ("RANK",), 4: ("RANK", "LOCAL_RANK")}
"""Two processes choose their core with `set_device`, as TorchTitan does; four take that of LOCAL_RANK."""


def run_ranks(folder: Path, num_processes: int, cases: Sequence[str]) -> dict[str, str]:
    """Results of each case of `ranks.py`, on rank 0."""
    words = ("-m", "tests.device.ranks", str(folder), *cases)
    variables = {"OPTIMUM_NEURON_INSTANCE": "inf2.48xlarge", "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    told = RANK_VARIABLES[num_processes]
    result = warm.run_ranks(*words, num_processes=num_processes, told=told, **variables)
    assert result.returncode == 0, result
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def results(request, built, tmp_path_factory) -> dict[str, str]:
    """Results of the cases of the day, or of those that -k leaves."""
    items = [item for item in request.session.items if item.path == request.path and hasattr(item, "callspec")]
    chosen = {item.callspec.params["case"] for item in items}
    return run_ranks(tmp_path_factory.mktemp("two"), 2, [case for case in (*CASES, *WARM) if case in chosen])


@pytest.mark.full(days=7)
@pytest.mark.parametrize("case", CASES)
def test_two_processes(results, case):
    assert results[case] == "ok"


def test_failure_is_reported(results):
    assert results["failing"].startswith("AssertionError")


@pytest.mark.full(days=2)
@needs_compiler
@pytest.mark.parametrize("case", WARM)
def test_compiled_models_are_loaded_on_every_rank(results, case):
    assert results[case] == "ok"


@pytest.mark.full(days=7)
def test_four_processes(built, tmp_path):
    result = run_ranks(tmp_path, 4, FOUR)
    assert {case: result[case] for case in FOUR} == dict.fromkeys(FOUR, "ok")


def test_every_backend_name_accepts_both_devices(python):
    program = """
import torch, torch.distributed as dist
for backend in (None, "neuron", "neuron:gloo", "cpu:gloo,neuron:neuron"):
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    for device in ("neuron", "cpu"):
        x = torch.ones(2, device=device)
        dist.all_reduce(x)
        print(x.device.type, x.sum().item())
    dist.barrier()
    dist.destroy_process_group()
"""
    assert python(program).stdout == "neuron 2.0\ncpu 2.0\n" * 4
