"""Convolutions of 3x3 filters by Winograd: which they are, their results, and compiled programs with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.compiler.lower import CpuFeatures, lower, probe_compiler, probe_cpu, winograd
from optimum_neuron.compiler.lower.prepare import find
from optimum_neuron.exporters.validation import compare
from optimum_neuron.runtime import Executor
from tests.programs import body_of, compile_module, spec, weights_of

DOTS = CpuFeatures(isa="AVX512", has_bf16_dot=True, extensions=("vnni",))
TILES = CpuFeatures(isa="AVX512", has_bf16_dot=True, extensions=("vnni", "amx"))
PLAIN = CpuFeatures(isa="AVX2", has_bf16_dot=False)
OTHER = CpuFeatures(isa="DEFAULT", has_bf16_dot=False)

needs_kernel = pytest.mark.skipif(
    probe_cpu().isa not in ("AVX2", "AVX512") or probe_compiler() is None, reason="no kernel for this CPU"
)


def kinds(features, size, *, dtype="float32", filters=(64, 64, 3, 3), **where):
    images = spec(2, filters[1], size, size, dtype=dtype)
    body = body_of(lambda x, w: F.conv2d(x, w, **where), images, spec(*filters, dtype=dtype))
    return [one.kind for one in find(body, features)]


def test_large_images_take_it():
    assert kinds(PLAIN, 32) == kinds(DOTS, 32, padding=1) == ["winograd"]
    assert kinds(DOTS, 32, dtype="bfloat16") == ["winograd"]


def test_bfloat16_takes_it_without_dot_products():
    assert kinds(PLAIN, 32, dtype="bfloat16") == ["winograd"], "oneDNN has no better way"


@pytest.mark.parametrize(
    ("features", "size", "options"),
    [
        (TILES, 32, {"dtype": "bfloat16"}),
        (DOTS, 3, {"padding": 1}),
        (DOTS, 32, {"stride": 2}),
        (DOTS, 32, {"dilation": 2}),
        (DOTS, 32, {"padding": (0, 1)}),
        (DOTS, 32, {"filters": (64, 64, 1, 1)}),
        (DOTS, 32, {"filters": (48, 64, 3, 3)}),
        (DOTS, 32, {"filters": (64, 8, 3, 3)}),
        (OTHER, 32, {}),
    ],
)
def test_others_do_not(features, size, options):
    assert "winograd" not in kinds(features, size, **options)


def normal(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1]))


def images(*shape, dtype=torch.float32):
    return normal(*shape).to(dtype).contiguous(memory_format=torch.channels_last)


def filters(num_outputs, num_inputs, dtype=torch.float32):
    return (images(num_outputs, num_inputs, 3, 3) / (9 * num_inputs) ** 0.5).to(dtype)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("num_images", "num_inputs", "height", "width", "padding", "num_outputs"),
    [
        (1, 16, 3, 3, 0, 64),
        (2, 48, 9, 30, 1, 128),
        (1, 80, 17, 4, 0, 64),
        (3, 32, 1, 1, 1, 64),
        (1, 16, 40, 44, 2, 192),
    ],
)
def test_equals_torch(dtype, num_images, num_inputs, height, width, padding, num_outputs):
    x = images(num_images, num_inputs, height, width, dtype=dtype)
    weight, bias = filters(num_outputs, num_inputs, dtype=dtype), normal(num_outputs).to(dtype)
    exact = F.conv2d(x.double(), weight.double(), bias.double(), padding=padding)
    found = winograd.CONVOLUTION(x, winograd.chunks(weight), bias, None, padding, False)
    assert found.dtype == dtype and found.is_contiguous(memory_format=torch.channels_last)
    error = compare("convolution", found.double(), exact, tolerance=3e-2 if dtype == torch.bfloat16 else 1e-5)
    assert error.ok and error.sqnr_db > (50 if dtype == torch.bfloat16 else 110), error


@needs_kernel
@pytest.mark.parametrize("num_threads", [1, 3])
def test_addend_and_relu(num_threads):
    x, weight, other = images(2, 32, 21, 22), filters(64, 32), images(2, 64, 21, 22)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        found = winograd.CONVOLUTION(x, winograd.chunks(weight), None, other, 1, True)
    finally:
        torch.set_num_threads(before)
    expected = F.relu(F.conv2d(x, weight, padding=1) + other)
    error = compare("convolution", found, expected, tolerance=1e-5)
    assert error.ok and error.sqnr_db > 110 and bool((found >= 0).all()), error


@needs_kernel
def test_image_of_a_batch_does_not_depend_on_the_others():
    x, weight = images(3, 32, 10, 10), winograd.chunks(filters(64, 32))
    alone = winograd.CONVOLUTION(x[1:2], weight, None, None, 1, False)
    assert torch.equal(winograd.CONVOLUTION(x, weight, None, None, 1, False)[1:2], alone)


@needs_kernel
def test_keeps_nan():
    x = torch.zeros(1, 16, 4, 4, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    x[0, 0, 1, 1] = float("nan")
    weight = torch.zeros(64, 16, 3, 3, dtype=torch.bfloat16)
    found = winograd.CONVOLUTION(x, winograd.chunks(weight), None, None, 1, False)
    assert bool(found.isnan().all()), "NaN reaches its tile"


class Block(nn.Module):
    """A residual block of a U-Net, and a sum as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(32, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)
        self.norm, self.batch_norm = nn.GroupNorm(8, 64), nn.BatchNorm2d(64)
        self.batch_norm.running_mean.normal_()
        self.batch_norm.running_var.uniform_(0.5, 2.0)
        self.third = nn.Conv2d(64, 64, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.first(x)
        y = self.second(F.silu(self.norm(y))) + y
        return F.relu(self.batch_norm(self.third(y)) + y)


@pytest.mark.full(days=4)
@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_program_calls_the_faster_kind(dtype):
    torch.manual_seed(0)
    module = Block().to(dtype).eval()
    x = torch.randn(2, 32, 20, 20).to(dtype)
    program = compile_module(module, {"x": spec(*x.shape, dtype=str(dtype)[6:])}).program
    host = lower(program, optlevel="2")
    has_tiles = dtype == torch.bfloat16 and "amx" in probe_cpu().extensions
    kind = "convolution" if has_tiles else "winograd"
    assert [one.kind for one in host.preparations.of_weights] == [kind] * 3
    weights = host.preparations.apply(weights_of(program, module))
    assert all(weights[name].shape == module.state_dict()[name].shape for name in weights), "no more memory"
    (found,) = Executor(program, host.functions, weights).run(next(iter(program.graphs)), [x]).values()
    with torch.no_grad():
        expected = module.float()(x.float())
    error = compare("block", found.float(), expected, tolerance=5e-2 if dtype == torch.bfloat16 else 1e-5)
    assert error.ok and error.sqnr_db > (35 if dtype == torch.bfloat16 else 110), error
