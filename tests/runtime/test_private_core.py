"""A private core outside of the instance: other processes do not matter, and no tool sees it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from optimum_neuron.compiler import MICROCODE_BYTES
from optimum_neuron.errors import CoreBusyError, DeviceMemoryError
from optimum_neuron.runtime import PrivateCore, claim_cores, ledger, require_room
from optimum_neuron.simulator import core_usage
from tests.programs import spec
from tests.raising import raises
from tests.runtime.conftest import INSTANCE, TARGET, loader


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, totals: list[torch.Tensor]) -> torch.Tensor:
        totals[0].add_(x)
        return totals[0] + 1


@pytest.fixture
def load(home):
    """Load a program with a state on a private core."""
    compiled_model = loader(Sum(), {"x": spec(4, 64)}, {"total.0": spec(4, 64)})
    return lambda claim: compiled_model(model_name=claim.model, claim=claim)


def test_program_runs_on_private_core_while_all_cores_are_busy(load, start):
    holder = start(INSTANCE.name)
    assert holder.ask("claim", "hog", INSTANCE.num_logical_cores()) == [0, 1]
    with pytest.raises(CoreBusyError):
        claim_cores(INSTANCE, model="bert")
    loaded_program = load(PrivateCore(INSTANCE, model="bert"))
    (result,) = loaded_program.run("graph", [torch.ones(4, 64)], loaded_program.take_state()).values()
    assert torch.equal(result, torch.full((4, 64), 2.0))
    loaded_program.close()
    with raises(CoreBusyError, closed=True):
        loaded_program.run("graph", [torch.ones(4, 64)], [])


def test_private_core_uses_nothing_of_the_instance(load, tmp_path):
    usage, used = core_usage(), ledger(INSTANCE, 0).used_bytes
    core = PrivateCore(INSTANCE, model="bert")
    loaded_program = load(core)
    loaded_program.run("graph", [torch.ones(4, 64)], loaded_program.take_state())
    assert core.hbm.used_by_owner()["bert"]["kv_cache"] == 4 * 64 * 4
    assert (core_usage(), ledger(INSTANCE, 0).used_bytes) == (usage, used)
    assert not (tmp_path / "cores").exists()
    loaded_program.close()
    assert not core.held and core.hbm.used_bytes == MICROCODE_BYTES
    assert repr(core) == "PrivateCore('bert', trn1.2xlarge, released)"


def test_private_core_has_the_memory_of_one_core(load):
    core = PrivateCore(INSTANCE, model="bert")
    loaded_program = load(core)
    hog = core.hbm.charge("weights", core.hbm.available_bytes, "hog")
    loaded_program.take_state()
    with raises(DeviceMemoryError, requested_bytes=loaded_program.need.kv_cache):
        loaded_program.take_state()
    with pytest.raises(DeviceMemoryError) as excinfo:
        require_room(loaded_program.needs, core)
    assert excinfo.value.details["capacity_bytes"] == TARGET.hbm_bytes_per_core()
    hog.release()
    before = core.hbm.used_bytes
    require_room(loaded_program.needs, core)
    assert core.hbm.used_bytes == before, "a check keeps no memory"
    with pytest.raises(DeviceMemoryError):
        require_room([dataclasses.replace(loaded_program.need, scratch=TARGET.hbm_bytes_per_core())], core)
    assert core.hbm.used_bytes == before, "neither does one that fails"
