"""The error of a program that is too large names the smallest number of instances that holds it."""

import dataclasses

import pytest
from torch import nn

from optimum_neuron.compiler import MemoryNeed, fullest_need, memory_need
from optimum_neuron.compiler.passes import divide_into_stages
from optimum_neuron.errors import DeviceMemoryError
from optimum_neuron.hardware import TARGETS, resolve_instance
from optimum_neuron.runtime import require_fit
from tests.programs import compile_module, spec

NUM_LAYERS, LAYER_GIB = 5, 8


class Layer(nn.Module):
    def forward(self, x, state):
        state.add_(x)
        return x + state


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(NUM_LAYERS))

    def forward(self, x, states):
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state)
        return x


@pytest.fixture(scope="module")
def program():
    """Five layers, each with a state of 8 GiB, after they were captured with small ones."""
    states = {f"total.{layer}": spec(4) for layer in range(NUM_LAYERS)}
    program = compile_module(Model(), {"x": spec(4)}, states=states).program
    return dataclasses.replace(program, states=dict.fromkeys(states, spec(LAYER_GIB * 2**28)))


@pytest.mark.parametrize(
    ("instance", "num_stages", "fitting"),
    [
        # 16 GiB a core, two cores: 3 of 5 layers on two cores.
        ("trn1.2xlarge", 1, "instance_type=2xtrn1.2xlarge, pipeline_parallel_size=2, and tensor_parallel_size=2"),
        ("trn1.2xlarge", 2, "instance_type=2xtrn1.2xlarge, pipeline_parallel_size=2, and tensor_parallel_size=2"),
        ("2xtrn1.2xlarge", 2, "tensor_parallel_size=2: that many cores of 2xtrn1.2xlarge share each stage"),
        ("trn1.32xlarge", 1, "tensor_parallel_size=8: that many cores of trn1.32xlarge share the model"),
    ],
)
def test_the_smallest_change_is_named(program, instance, num_stages, fitting):
    program, target = divide_into_stages(program, num_stages), TARGETS["trn1"]
    need, size = memory_need(program), resolve_instance(instance).value
    with pytest.raises(DeviceMemoryError) as caught:
        require_fit([need], instance=size, target=target, model_name="m", num_cores=num_stages, program=program)
    assert fitting in caught.value.hint


def test_a_program_without_layers_fits_no_number_of_instances():
    program = compile_module(nn.ReLU(), {"x": spec(4)}).program
    need = dataclasses.replace(memory_need(program), weights=2**50)
    size = resolve_instance("trn1.2xlarge").value
    with pytest.raises(DeviceMemoryError) as caught:
        require_fit([need], instance=size, target=TARGETS["trn1"], model_name="m", program=program)
    assert "instance_type" not in caught.value.hint


@pytest.mark.parametrize(
    ("gib", "instance", "fitting"),
    [
        (140, "inf2.xlarge", "instance_type=inf2.24xlarge and tensor_parallel_size=10"),  # 12 cores with 16 GiB each
        (60, "inf2.xlarge", "instance_type=inf2.24xlarge and tensor_parallel_size=4"),
        (60, "trn1.2xlarge", "instance_type=trn1.32xlarge and tensor_parallel_size=8"),
        (600, "inf2.xlarge", "instance_type=trn2"),
    ],
)
def test_a_larger_instance_is_named(gib, instance, fitting):
    program = compile_module(nn.ReLU(), {"x": spec(4)}).program
    need = dataclasses.replace(memory_need(program), weights=gib * 2**30)
    size = resolve_instance(instance).value
    with pytest.raises(DeviceMemoryError) as caught:
        require_fit([need], instance=size, target=TARGETS[size.family], model_name="m", program=program)
    assert fitting in caught.value.hint and "smaller model" not in caught.value.hint


INF1_CHIP = 8 * 2**30


@pytest.mark.parametrize(
    ("gib", "traced", "changes"),
    [
        (9, False, ["torch_dtype=bfloat16", "instance_type=inf2"]),
        (9, True, ["bfloat16()", '"--neuroncore-pipeline-cores", "8"', "inf1.6xlarge", "torch_neuronx"]),
        (17, True, ['"--neuroncore-pipeline-cores", "12"', "inf1.6xlarge", "OPTIMUM_NEURON_INSTANCE=trn2"]),
        (200, True, ["smaller model"]),
    ],
)
def test_a_chip_of_inf1_holds_the_stages_of_its_cores(gib, traced, changes):
    stages = [MemoryNeed(weights=gib * 2**28, kv_cache=0, scratch=2**20)] * 4  # each fits by itself up to 32 GiB
    assert gib > 31 or stages[0].total <= INF1_CHIP
    size = resolve_instance("inf1.xlarge").value
    with pytest.raises(DeviceMemoryError) as caught:
        require_fit(stages, instance=size, target=TARGETS["inf1"], model_name="m", num_cores=4, traced=traced)
    assert caught.value.details["total"] == sum(one.total for one in stages)
    assert caught.value.details["available"] == INF1_CHIP
    assert all(change in caught.value.hint for change in changes)
    assert "tensor_parallel_size" not in caught.value.hint


def test_eight_stages_lie_on_two_chips_of_inf1():
    stages = [MemoryNeed(weights=15 * 2**27, kv_cache=0, scratch=0)] * 8  # 7.5 GiB a chip
    size = resolve_instance("inf1.6xlarge").value
    require_fit(stages, instance=size, target=TARGETS["inf1"], model_name="m", num_cores=8)


def test_programs_beyond_the_last_core_of_a_chip_share_cores_and_memory():
    need = MemoryNeed(weights=10, kv_cache=0, scratch=1, code=100)
    assert fullest_need([need] * 6, cores_of_memory=4).total == 4 * 111  # two chips
    assert fullest_need([need] * 6, cores_of_memory=4, num_memories=1).total == 6 * 11 + 4 * 100
