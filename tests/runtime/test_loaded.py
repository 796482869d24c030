"""A loaded program: its core, its memory, its state, and the error if it does not fit."""

from __future__ import annotations

import gc
import re

import pytest
import torch

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler import MICROCODE_BYTES, MemoryNeed
from optimum_neuron.errors import CoreBusyError, DeviceMemoryError
from optimum_neuron.exporters import main_export
from optimum_neuron.hardware import TARGETS
from optimum_neuron.runtime import held_cores, ledger, require_fit
from tests.programs import spec
from tests.raising import raises
from tests.runtime.conftest import INSTANCE, loader
from tests.tiny import save_tiny, tiny_config

GIB = 2**30


class Counter(torch.nn.Module):
    """Adds its input to a state."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((256, 256), 2.0))

    def forward(self, x: torch.Tensor, totals: list[torch.Tensor]) -> torch.Tensor:
        totals[0].add_(x @ self.weight)
        return totals[0] + 1


@pytest.fixture(scope="module")
def load_program():
    return loader(Counter(), {"x": spec(8, 256)}, {"total.0": spec(8, 256)})


@pytest.fixture
def load(home, load_program):
    return lambda name="counter": load_program(model_name=name)


def used(loaded_model):
    return ledger(INSTANCE, loaded_model.claim.core_ids[0]).used_by_category()


def test_loaded_model_holds_core_and_charges_memory(load):
    loaded_program = load()
    (row,) = held_cores(INSTANCE)
    assert row["model"] == "counter" and row["core_id"] == loaded_program.claim.core_ids[0]
    assert used(loaded_program) == {
        "weights": 256 * 256 * 4,
        "kv_cache": 8 * 256 * 4,
        "scratch": loaded_program.need.scratch,
        "code": MICROCODE_BYTES,
    }
    assert loaded_program.need.scratch >= 8 * 256 * 4
    loaded_program.close()
    assert held_cores(INSTANCE) == [] and sum(used(loaded_program).values()) == MICROCODE_BYTES


def test_close_is_idempotent_and_run_after_close_is_an_error(load):
    loaded_program = load()
    state = loaded_program.take_state()
    loaded_program.run("graph", [torch.ones(8, 256)], state)
    loaded_program.close()
    loaded_program.close()
    with pytest.raises(CoreBusyError) as error:
        loaded_program.run("graph", [torch.ones(8, 256)], state)
    assert error.value.details == {"model": "counter", "closed": True}


def test_last_reference_frees_core_and_memory(load):
    loaded_program = load()
    core = ledger(INSTANCE, loaded_program.claim.core_ids[0])
    del loaded_program
    gc.collect()
    assert held_cores(INSTANCE) == [] and core.used_bytes == MICROCODE_BYTES


def test_one_set_of_state_is_kept_for_the_next_call(load):
    loaded_program = load()
    need, states = loaded_program.need.kv_cache, [loaded_program.take_state() for _ in range(4)]
    for state, still_charged in zip(states, (4, 3, 2, 1), strict=True):
        loaded_program.give_back(state)
        assert used(loaded_program)["kv_cache"] == still_charged * need
    second = [loaded_program.take_state(), loaded_program.take_state()]
    assert second[0] is states[0] and used(loaded_program)["kv_cache"] == 2 * need
    loaded_program.close()
    assert used(loaded_program)["kv_cache"] == 0
    for state in second:
        loaded_program.give_back(state)
    with pytest.raises(CoreBusyError):
        loaded_program.take_state()


def test_more_state_than_core_has_is_refused_with_table(load):
    loaded_program = load()
    core = ledger(INSTANCE, loaded_program.claim.core_ids[0])
    hog = core.charge("weights", core.available_bytes - loaded_program.need.kv_cache, "hog")
    states = [loaded_program.take_state(), loaded_program.take_state()]
    with raises(DeviceMemoryError, core_id=core.core_id, requested_bytes=loaded_program.need.kv_cache):
        loaded_program.take_state()
    assert len(states) == 2
    hog.release()
    loaded_program.close()


def test_failed_load_frees_memory(load, monkeypatch):
    loaded_program = load()
    core = ledger(INSTANCE, loaded_program.claim.core_ids[0])
    other = ledger(INSTANCE, 1 - loaded_program.claim.core_ids[0])
    before = (core.used_bytes, other.used_bytes, held_cores(INSTANCE))
    hogs = [c.charge("weights", c.available_bytes - 1, "hog") for c in (core, other)]
    with pytest.raises(DeviceMemoryError):
        load("late")
    for hog in hogs:
        hog.release()
    assert (core.used_bytes, other.used_bytes, held_cores(INSTANCE)) == before
    loaded_program.close()


# Models that do not fit, and the advice.


def accepted(need):
    require_fit([need], instance=TARGETS["inf2"].instances[0], target=TARGETS["inf2"], model_name="big")


def refused(need):
    with pytest.raises(DeviceMemoryError) as error:
        accepted(need)
    return error.value


def test_message_has_table_and_says_simulated():
    need = MemoryNeed(weights=15 * GIB, kv_cache=3 * GIB, scratch=GIB // 2)
    error = refused(need)
    assert error.message.startswith("big needs 18.59 GiB, but a core of inf2.xlarge has 16.00 GiB.\n")
    for row in ("weights       15.000 GiB   93.8%", "kv_cache       3.000 GiB", "code           0.094 GiB"):
        assert row in error.message
    assert error.message.endswith("(simulated)")
    assert error.details["total"] == need.total and error.details["available"] == 16 * GIB
    assert error.details["simulated"] is True
    accepted(MemoryNeed(weights=16 * GIB - MICROCODE_BYTES, kv_cache=0, scratch=0))


@pytest.mark.parametrize("cache", [14, 17, 33, 40, 100, 1000])
@pytest.mark.parametrize("scratch", [0, 1, 5, 13])
def test_advised_division_of_cache_is_minimal(cache, scratch):
    def divided(cache_by, scratch_by):
        return MemoryNeed(weights=2 * GIB, kv_cache=cache * GIB // cache_by, scratch=scratch * GIB // scratch_by)

    pattern = r"[Dd]ivide batch_size or sequence_length by (\d+)(?:, or (\d+) if scratch does not shrink)?"
    factors = re.search(pattern, refused(divided(1, 1)).hint)
    at_least, surely = int(factors[1]), int(factors[2] or factors[1])
    assert 2 <= at_least <= surely
    accepted(divided(at_least, at_least))
    accepted(divided(surely, 1))
    if at_least > 2:
        refused(divided(at_least - 1, at_least - 1))
    if surely > 2:
        refused(divided(surely - 1, 1))


def test_third_is_enough_where_half_is_not():
    hint = refused(MemoryNeed(weights=10 * GIB, kv_cache=15 * GIB, scratch=0)).hint
    assert hint.startswith("Divide batch_size or sequence_length by 3: the cache then takes 5.00 GiB")


BFLOAT16 = "pass torch_dtype=bfloat16 where the model is float32"
TWO = "tensor_parallel_size=2"


@pytest.mark.parametrize(
    ("need", "advice"),
    [
        (
            MemoryNeed(weights=20 * GIB, kv_cache=0, scratch=0),
            [BFLOAT16, "instance_type=trn2: its cores have 24 GiB", TWO],
        ),
        (MemoryNeed(weights=18 * GIB, kv_cache=10 * GIB, scratch=0), [BFLOAT16, "instance_type=trn3", TWO]),
        (MemoryNeed(weights=15 * GIB, kv_cache=8 * GIB, scratch=0), ["divide", BFLOAT16, "instance_type=trn2", TWO]),
        (MemoryNeed(weights=1 * GIB, kv_cache=0, scratch=20 * GIB), ["instance_type=trn2: its cores have 24 GiB"]),
        # 24 GiB with the microcode of one core, and trn2 reserves it for two.
        (MemoryNeed(weights=0, kv_cache=0, scratch=24 * GIB - MICROCODE_BYTES), ["instance_type=trn3"]),
        (
            MemoryNeed(weights=1 * GIB, kv_cache=0, scratch=900 * GIB),
            ["lower batch_size, sequence_length or prefill_buckets: cache and scratch take 900.00 GiB, and 14.91 GiB"],
        ),
        (
            MemoryNeed(weights=300 * GIB, kv_cache=0, scratch=0),
            ["instance_type=inf2.48xlarge and tensor_parallel_size=20"],
        ),
    ],
)
def test_advice_lists_exactly_the_changes_that_fit(need, advice):
    changes = refused(need).hint.lower().split("; or ")
    assert len(changes) == len(advice)
    for change, part in zip(changes, advice, strict=True):
        assert part.lower() in change


@pytest.mark.full(days=2)
def test_advice_for_real_model_works(tmp_path):
    """A cache of 24 GiB: refused before anything of that size exists, and the advice fits."""
    sizes = {"max_position_embeddings": 4096, "num_key_value_heads": 4, "head_dim": 64, "tie_word_embeddings": True}
    shapes = {"sequence_length": 4096, "prefill_buckets": (1,), "extend_length": 1, "optlevel": "1"}
    checkpoint = save_tiny(tmp_path / "with_weights", "llama", **sizes)
    with pytest.raises(DeviceMemoryError) as error:
        NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, batch_size=1024, **shapes)
    assert error.value.details["kv_cache"] == 24 * GIB
    factor = int(re.search(r"by (\d+): the cache then takes ([\d.]+) GiB", str(error.value))[1])
    config = tiny_config("llama", architectures=["LlamaForCausalLM"], **sizes)
    config.save_pretrained(tmp_path / "config")
    data = main_export(tmp_path / "config", tmp_path / "out", batch_size=1024 // factor, **shapes).to_dict()
    assert data["fits_one_core"] and data["hbm_bytes"]["kv_cache"] == 24 * GIB // factor
