"""NKI kernels in programs: written out, checked, stored as data, known by content, timed by their instructions."""

from __future__ import annotations

import json

import pytest
import torch

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler import Program, capture, memory_need, read_program, write_program
from optimum_neuron.compiler.kernels import kernels_of
from optimum_neuron.compiler.lower import lower
from optimum_neuron.compiler.neff import open_neff, write_neff
from optimum_neuron.errors import ArtifactError
from optimum_neuron.hardware import resolve_target
from optimum_neuron.nki import isa as nisa, jit, kernel_time, language as nl, nki_op
from optimum_neuron.simulator.work import work_of_program

TRN2 = resolve_target("trn2").value
INPUTS = {"x": TensorSpec(shape=(256, 16), dtype="float32")}


@jit
def scale_kernel(x, factor):
    """Scales rows, by way of a tensor in HBM of its own."""
    out, own = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.ndarray(x.shape, x.dtype, nl.private_hbm)
    for block in nl.affine_range(x.shape[0] // 128):
        rows, tile = nl.ds(block * 128, 128), nl.ndarray((128, x.shape[1]), x.dtype)
        nisa.dma_copy(own[rows], x[rows])
        nisa.dma_copy(tile, own[rows])
        nisa.tensor_scalar(tile, tile, nl.multiply, factor)
        nisa.dma_copy(out[rows], tile)
    return out


@nki_op("optimum_neuron_tests::both", mutates_args={})
def both(x: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    return scale_kernel(x.relu(), factor), scale_kernel(x, factor)


class Model(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.linear, self.factor = torch.nn.Linear(16, 16), factor

    def forward(self, x):
        one, other = both(self.linear(x), self.factor)
        return scale_kernel(one - other, self.factor)


def compiled(factor=3.0, target=TRN2):
    from optimum_neuron.compiler import compile_graphs

    model = Model(factor).eval()
    made = compile_graphs([lambda shorten: capture(model, name="forward", inputs=INPUTS)], target=target)
    return model, made


@pytest.fixture(scope="module")
def program():
    return compiled()[1].program


def test_kernels_are_calls_of_their_own(program):
    (key,) = kernels_of(program)
    calls = [call.subprogram for call in program.graphs["forward"].calls]
    kernels = [name for name in calls if kernels_of(_alone(program, name))]
    assert key.startswith("scale_kernel_") and len(kernels) == 3 and len(set(kernels)) == 1
    assert not compiled()[1].reports[0].refused


def _alone(program, name):
    return Program(graphs={}, subprograms={name: program.subprograms[name]}, weights={}, states={}, constants={})


def run(program, model, x):
    host = lower(program, optlevel="1")
    graph = program.graphs["forward"]
    values = {"input:x": x} | {f"weight:{name}": tensor.detach() for name, tensor in model.named_parameters()}
    values |= {f"const:{name}": tensor for name, tensor in program.constants.items()}
    for call in graph.calls:
        results = host.functions[call.subprogram]([values[value] for value in call.inputs])
        values |= dict(zip(call.outputs, results, strict=True))
    return values[next(iter(graph.outputs.values()))]


def test_stored_program_runs_without_the_kernel(program, tmp_path):
    model, made = compiled()
    path, x = tmp_path / "model.neff", torch.randn(256, 16)
    write_program(path, made.program, name="kernels", target=TRN2, metadata={})
    with open_neff(path) as neff:
        (name,) = [name for name in neff.names if name.startswith("kernels/")]
        text = json.loads(bytes(neff.read(name)))
        read = read_program(neff)
    assert read.content_hash() == made.program.content_hash() and text["name"] == "scale_kernel"
    torch.testing.assert_close(run(read, model, x), model(x))


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"float32",[128,16]', '"float32",[129,16]'),
        lambda text: text.replace('"tensor_scalar"', '"system"'),
        lambda text: text.replace("3.0", "4.0"),
        lambda text: "{}",
    ],
)
def test_edited_kernels_are_refused(program, tmp_path, edit):
    path, other = tmp_path / "model.neff", tmp_path / "other.neff"
    write_program(path, program, name="kernels", target=TRN2, metadata={})
    with open_neff(path) as neff:
        members = {name: bytes(neff.read(name)) for name in neff.names}
    (name,) = [name for name in members if name.startswith("kernels/")]
    changed = edit(members[name].decode())
    assert changed != members[name].decode()
    options = {"target": "trn2", "core_version": 3, "compiler_version": "0", "metadata": {}}
    write_neff(other, members | {name: changed.encode()}, name="kernels", **options)
    with open_neff(other) as neff, pytest.raises(ArtifactError):
        read_program(neff)


def test_content_of_kernels_is_content_of_programs(program):
    assert compiled()[1].program.content_hash() == program.content_hash()
    assert compiled(factor=4.0)[1].program.content_hash() != program.content_hash()


def test_time_and_memory_are_those_of_the_instructions(program):
    (key,) = kernels_of(program)
    steps = [step for step in work_of_program(program, "forward").steps if step.work.kernels.counts]
    assert [step.name for step in steps] == 3 * ["nki.scale_kernel"]
    assert work_of_program(program, "forward").total.kernels.counts == ((key, 3),)
    time = kernel_time(key, "trn2")
    assert time.hbm_bytes == 4 * 256 * 16 * 4 and 0 < max(time.busy_us.values()) <= time.total_us
    assert time.total_us != kernel_time(key, "trn3").total_us
    # Two tensors that are read, one that is made, and the one of the kernel.
    assert memory_need(program).scratch >= 3 * 256 * 16 * 4
