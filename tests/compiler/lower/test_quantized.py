"""The kernel for quantized weights, in Python and in compiled subgraphs, against float32."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from optimum_neuron.compiler import DYNAMIC_LINEAR, QUANTIZED_LINEAR
from optimum_neuron.compiler.lower import probe_compiler, probe_cpu, quantized
from optimum_neuron.compiler.lower.generate import generate
from optimum_neuron.compiler.serialize import body_to_dict
from optimum_neuron.weights import Scheme, dequantize

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="needs a C++ compiler")

SCHEMES = ("int8", "fp8", "fp8-g32", "int4", "int4-g64", "int4-g64-zp")


@pytest.mark.full(days=2)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("num_rows", "num_outputs", "num_inputs"), [(1, 7, 64), (3, 130, 192), (9, 5, 128)])
def test_kernel_agrees_with_dequantized_weight(scheme, num_rows, num_outputs, num_inputs):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(num_outputs, num_inputs, generator=generator)
    x = torch.randn(num_rows, 1, num_inputs, generator=generator)
    bias = torch.randn(num_outputs, generator=generator).bfloat16()
    parts = Scheme.parse(scheme).quantize(weight)
    operands = (parts["values"], parts["scale"], parts.get("zero"))
    expected = x @ dequantize(*operands).T + bias.float()
    # With VNNI, activations have 15 bits of the largest of 32.
    torch.testing.assert_close(quantized.STREAMED(x, *operands, bias), expected, atol=4e-3, rtol=1e-3)
    torch.testing.assert_close(QUANTIZED_LINEAR(x, *operands, bias), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("num_rows", [2, 9])
def test_quantized_rows_agree_with_the_operator(num_rows):
    x = torch.randn(num_rows, 128, generator=torch.Generator().manual_seed(0))
    parts = Scheme.parse("int8").quantize(torch.randn(40, 128, generator=torch.Generator().manual_seed(1)))
    operands = (parts["values"], parts["scale"], torch.ones(40))
    actual = quantized.dynamic_linear(probe_cpu(), x, *operands)
    torch.testing.assert_close(actual, DYNAMIC_LINEAR(x, *operands), atol=4e-3, rtol=1e-3)
    x[0, 5] = torch.nan
    assert quantized.dynamic_linear(probe_cpu(), x, *operands)[0].isnan().all()


@pytest.mark.parametrize("scheme", ["int8", "fp8"])
def test_every_number_is_decoded(scheme):
    dtype = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}[scheme]
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype)
    numbers = torch.where(numbers.float().abs() <= 240, numbers.float(), 0.0).to(dtype)  # nan, and what no scheme has
    values = numbers.view(1, 256)
    for column in (torch.eye(256)[:4], torch.eye(256)[124:132]):
        result = quantized.STREAMED(column, values, torch.ones(1, 1), None, None)
        torch.testing.assert_close(result[:, 0], column @ values[0].float(), atol=0, rtol=1e-6)


@pytest.mark.parametrize(("num_rows", "is_streamed"), [(1, True), (16, True), (17, False)])
def test_generated_code_calls_the_kernel_for_few_rows(num_rows, is_streamed):
    parts = Scheme.parse("int4").quantize(torch.ones(8, 64))
    body = make_fx(lambda x, values, scale: (QUANTIZED_LINEAR(x, values, scale, None, None),), tracing_mode="fake")(
        torch.ones(num_rows, 64, dtype=torch.bfloat16), *parts.values()
    )
    assert quantized.is_in(body, probe_cpu()) == is_streamed
    assert quantized.KERNEL.is_called(generate(body_to_dict(body), "inductor")) == is_streamed


def test_nan_is_not_lost():
    for scheme in ("int8", "int4", "fp8"):
        parts = Scheme.parse(scheme).quantize(torch.ones(4, 64))
        for wrong in (torch.nan, torch.inf):
            x = torch.ones(1, 64)
            x[0, 5] = wrong
            assert not quantized.STREAMED(x, parts["values"], parts["scale"], None, None).isfinite().any()
