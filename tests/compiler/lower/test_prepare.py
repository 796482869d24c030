"""Prepared weights: the choice, the computation, and that a program gives the same results."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures, aten_function, lower, probe_compiler
from optimum_neuron.compiler.lower.convolutions import fuse
from optimum_neuron.compiler.lower.onednn import CONVOLUTION
from optimum_neuron.compiler.lower.prepare import NOTHING, Preparation, find, plan_preparations
from optimum_neuron.exporters.validation import compare
from optimum_neuron.runtime import Executor
from tests.programs import body_of, compile_module, operators, spec, weights_of

PLAIN = CpuFeatures(isa="AVX2", has_bf16_dot=False)
BF16 = CpuFeatures(isa="AVX512", has_bf16_dot=True)


class Block(nn.Module):
    """A residual block as ResNets have it: two convolutions with norms, and a shortcut with one."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1)
        self.short = nn.Conv2d(4, 8, 1, stride=2, bias=False)
        self.first, self.second, self.third = (nn.BatchNorm2d(8) for _ in range(3))
        for norm in (self.first, self.second, self.third):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x):
        y = self.second(self.two(F.relu(self.first(self.one(x)))))
        y += self.third(self.short(x))
        return F.relu(y)


def block():
    torch.manual_seed(0)
    return Block().eval()


def test_linear_weights_are_packed_for_many_rows_only():
    many = body_of(F.linear, spec(40, 4), spec(6, 4))
    assert find(many, PLAIN) == [Preparation(kind="linear", sources=(1,), targets=(1,))]
    few = body_of(F.linear, spec(1, 4), spec(6, 4))
    assert find(few, PLAIN) == [], "a token streams its weights as they are"
    several = body_of(F.linear, spec(8, 4), spec(6, 4))
    assert find(several, PLAIN) == [], "and a kernel reads them for a few tokens"
    tied = body_of(lambda x, w: F.linear(x, w) @ w, spec(40, 4), spec(6, 4))
    assert find(tied, PLAIN) == [], "it is also read otherwise"
    narrow = body_of(F.linear, spec(40, 4, dtype="bfloat16"), spec(6, 4, dtype="bfloat16"))
    assert find(narrow, PLAIN) == [] and len(find(narrow, BF16)) == 1, "where the CPU multiplies bf16"


def test_weight_used_raw_elsewhere_is_not_packed():
    module = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    program = compile_module(module, {"x": spec(40, 16)}).program
    assert [one.targets for one in plan_preparations(program, set(program.subprograms)).of_weights] == [("0.weight",)]
    (graph,) = program.graphs.values()
    output = dataclasses.replace(graph, outputs={**graph.outputs, "weight": "weight:0.weight"})
    other = dataclasses.replace(program, graphs={graph.name: output})
    assert plan_preparations(other, set(program.subprograms)).of_weights == ()


def test_eager_bodies_have_no_preparations():
    program = compile_module(nn.Linear(16, 16), {"x": spec(8, 16)}).program
    assert plan_preparations(program, ()) is NOTHING


def test_preparations_survive_pickling_to_worker():
    program = compile_module(block(), {"x": spec(1, 4, 8, 8)}).program
    result = [one for subprogram in program.subprograms.values() for one in find(subprogram.body, PLAIN)]
    assert len(result) == 3 and [Preparation.from_list(one.to_list()) for one in result] == result


def test_norms_sums_and_relus_are_fused_into_convolutions():
    module, x = block(), torch.randn(2, 4, 9, 9)
    program = compile_module(module, {"x": spec(2, 4, 9, 9)}).program
    plan = plan_preparations(program, set(program.subprograms))
    bodies = {name: subprogram.body for name, subprogram in program.subprograms.items()}
    for name, ones in plan.of_subprogram.items():
        fuse(bodies[name], {one.targets[0]: one.kind for one in ones})
    result = [name for body in bodies.values() for name in operators(body)]
    assert result == ["neuron_host.convolution.default"] * 3
    functions = {name: aten_function(body) for name, body in bodies.items()}
    executor = Executor(program, functions, plan.apply(weights_of(program, module)))
    (result,) = executor.run(next(iter(program.graphs)), [x]).values()
    with torch.no_grad():
        error = compare("block", result, module(x), tolerance=1e-5)
    assert error.ok and error.sqnr_db > 110, error


def test_tensor_written_later_is_read_in_place():
    def function(x, w):
        y = F.conv2d(x, w)
        x.mul_(2)
        return y + x

    body = body_of(lambda x, w: function(x * 1, w), spec(1, 4, 5, 5), spec(4, 4, 1, 1))
    x, w = torch.randn(1, 4, 5, 5), torch.randn(4, 4, 1, 1)
    fuse(body, {one.targets[0]: one.kind for one in find(body, PLAIN)})
    torch.testing.assert_close(body(x, w)[0], function(x.clone(), w))


def reuses(function, *shapes):
    """For each convolution, whether it writes over its addend."""
    body = body_of(function, *(spec(*shape) for shape in shapes))
    fuse(body, {one.targets[0]: one.kind for one in find(body, PLAIN)})
    return [node.args[-1] for node in body.graph.nodes if node.target == CONVOLUTION]


def test_sum_overwrites_addend_without_later_reader():
    shapes = (1, 4, 5, 5), (4, 4, 1, 1), (4, 4, 1, 1), (4, 4, 1, 1)

    def residual(x, u, v, w):
        y = F.relu(F.conv2d(x, u))
        return F.conv2d(F.relu(F.conv2d(y, v)), w) + y

    assert reuses(residual, *shapes) == [False, False, True]
    assert reuses(lambda x, u, v, w: F.conv2d(F.conv2d(x, v), w) + x, *shapes) == [False, False], "the caller's"

    def read_later(x, u, v, w):
        y = F.conv2d(x, u)
        return (F.conv2d(x, w) + y) * y

    assert reuses(read_later, *shapes) == [False, False]

    def read_by_another(x, u, v, w):
        y = F.conv2d(x, u)
        return (F.conv2d(x, w) + y) * F.conv2d(y, v)

    assert not any(reuses(read_by_another, *shapes))

    def view_read_later(x, u, v, w):
        y = F.conv2d(x, u)
        view = y.flatten(2)
        return (F.conv2d(F.relu(view).view_as(y), w) + y).flatten(2) * view

    assert not any(reuses(view_read_later, *shapes))

    def part_read_later(x, u, v, w):
        y = F.conv2d(x, u)
        first, second = y.chunk(2, 1)
        return (F.conv2d(torch.cat((second, first), 1).relu(), w) + y) * first.repeat(1, 2, 1, 1)

    assert not any(reuses(part_read_later, *shapes))


class Sums(nn.Module):
    """Sums without a relu after them: of an argument, and of a result that nothing reads later."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Conv2d(48, 48, 3, padding=1) for _ in range(3))

    def forward(self, x):
        y = self.one(x) + x
        return self.three(F.silu(self.two(y))) + self.two(y)


class SumOfInput(Sums):
    """Adds the input of a convolution to its result: the kernel reads neighbors, so it cannot write over them."""

    def forward(self, x):
        y = self.one(x)
        return self.two(y) + y


@pytest.mark.full(days=4)
@pytest.mark.parametrize("kind", [Sums, SumOfInput])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
def test_sums_without_relu_are_fused(tmp_path, dtype, kind):
    torch.manual_seed(0)
    module, x = kind().to(dtype), torch.randn(2, 48, 20, 20, dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    program = compile_module(module, {"x": spec(*x.shape, dtype=name)}).program
    host = lower(program, optlevel="2", root=tmp_path)
    executor = Executor(program, host.functions, host.preparations.apply(weights_of(program, module)))
    (result,) = executor.run(next(iter(program.graphs)), [x]).values()
    with torch.no_grad():
        error = compare(name, result.float(), module.float()(x.float()), tolerance=1e-5 if name == "float32" else 0.05)
    assert error.ok and error.sqnr_db > (110 if name == "float32" else 40), error


def test_bf16_convolutions_are_packed_where_the_cpu_multiplies_bf16():
    body = body_of(F.conv2d, *(spec(*shape, dtype="bfloat16") for shape in ((1, 4, 5, 5), (4, 4, 1, 1))))
    assert find(body, PLAIN) == [] and [one.kind for one in find(body, BF16)] == ["convolution"]
    half = body_of(F.conv2d, *(spec(*shape, dtype="float16") for shape in ((1, 4, 5, 5), (4, 4, 1, 1))))
    assert find(half, BF16) == []


def test_training_statistics_are_not_folded():
    body = body_of(
        lambda x, w, g, b: F.batch_norm(F.conv2d(x, w), None, None, g, b, training=True),
        spec(2, 4, 5, 5), spec(4, 4, 1, 1), spec(4), spec(4),
    )  # fmt: skip
    assert all(len(one.sources) == 1 for one in find(body, PLAIN))


@pytest.mark.full(days=4)
@pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
def test_compiled_code_uses_prepared_weights(tmp_path):
    module = nn.Sequential(block(), nn.MaxPool2d(3, 2, 1), nn.Flatten(2), nn.Linear(9, 7), nn.GELU(), nn.Linear(7, 5))
    x = torch.randn(5, 4, 10, 10)
    program = compile_module(module, {"x": spec(5, 4, 10, 10)}).program
    weights = weights_of(program, module)
    host = lower(program, optlevel="2", root=tmp_path)
    prepared = host.preparations.apply(weights)
    assert {name for name in weights if prepared[name].is_mkldnn} >= {"3.weight", "5.weight", "0.one.weight"}
    (graph,) = program.graphs
    (result,) = Executor(program, host.functions, prepared).run(graph, [x]).values()
    with torch.no_grad():
        error = compare("all", result, module(x), tolerance=1e-5)
    assert error.ok and error.sqnr_db > 100, error


class Stages(nn.Module):
    """Stages that the outline makes bodies of."""

    def __init__(self) -> None:
        super().__init__()
        widths = [(4, 8), (8, 6), (6, 6)]
        self.stages = nn.ModuleList(nn.Sequential(nn.Conv2d(*width, 3), nn.ReLU()) for width in widths)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x


@pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")
def test_images_stay_channels_last_between_bodies(tmp_path):
    module, x = Stages().eval(), torch.randn(2, 4, 10, 10)
    program = compile_module(module, {"x": spec(2, 4, 10, 10)}).program
    assert len(program.subprograms) > 1
    host = lower(program, optlevel="2", root=tmp_path)
    orders = [one for ones in host.preparations.of_subprogram.values() for one in ones if one.kind == "channels_last"]
    assert orders
    executor = Executor(program, host.functions, host.preparations.apply(weights_of(program, module)))
    results = [tensor for _, (tensor,) in executor.trace(next(iter(program.graphs)), [x])]
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in results[:-1])
    last = results[-1]
    assert last.is_contiguous()
    with torch.no_grad():
        error = compare("stages", last, module(x), tolerance=1e-5)
    assert error.ok and error.sqnr_db > 100, error
