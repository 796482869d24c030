"""Products of few rows with a quantized weight on the host CPU, as an operator that Inductor calls from C++.

`quantized.cpp` reads the numbers as they are stored; `linear` takes the place of `neuron::quantized_linear` in host
code. Many rows go to oneDNN, on the dequantized weight.

    torch.ops.neuron_host.quantized_linear(x, values, scale, zero, bias)

Shape legend: I inputs, O outputs, G groups of inputs.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ....weights import dequantize, quantize_rows
from ...quantized import DYNAMIC_LINEAR, QUANTIZED_LINEAR
from .. import onednn
from ..choose import CpuFeatures, probe_cpu
from ..kernel import HostKernel

MAX_ROWS = 16
"""Up to this many rows it takes less time than dequantizing the weight and oneDNN. 8 rows of an 8-bit weight with 2,048
inputs and 8,192 outputs took 0.3 of that on one core with VNNI, 16 rows 0.45; of 4 bits less than 0.1."""

_VNNI_FLAGS = ("-mavx512vnni",)
"""More flags of the compiler where the CPU multiplies 8- and 16-bit integers."""


def is_in(body: torch.fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body calls the kernel."""
    targets = (QUANTIZED_LINEAR, DYNAMIC_LINEAR)
    products = [node for target in targets for node in body.graph.find_nodes(op="call_function", target=target)]
    return any(_num_rows(node.args[0].meta["val"]) <= MAX_ROWS for node in products)


def linear(
    features: CpuFeatures,
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero_OG: torch.Tensor | None,
    bias_O: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply by a quantized weight in the dtype of `x_I`; few rows read it once, as it is stored."""
    if _num_rows(x_I) <= MAX_ROWS:
        return STREAMED(x_I.float().contiguous(), values, scale_OG, zero_OG, bias_O).to(x_I.dtype)
    is_exact = values.dtype != torch.uint8 and scale_OG.shape[1] == 1  # the numbers are exact in bfloat16
    if is_exact and x_I.dtype == torch.bfloat16 and features.has_bf16_dot:
        result = onednn.LINEAR(x_I, values.to(torch.bfloat16), None).float() * scale_OG[:, 0]
    else:
        result = onednn.LINEAR(x_I.float(), dequantize(values, scale_OG, zero_OG), None)
    return (result if bias_O is None else result + bias_O.float()).to(x_I.dtype)


def dynamic_linear(
    features: CpuFeatures,
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_O1: torch.Tensor,
    bias_O: torch.Tensor | None,
) -> torch.Tensor:
    """Multiply quantized rows by a quantized weight in the dtype of `x_I`; the numbers are exact in float32."""
    numbers_I, row_scale = quantize_rows(x_I, values.dtype)
    result_O = linear(features, numbers_I.float(), values, scale_O1, None, None) * row_scale
    return (result_O if bias_O is None else result_O + bias_O.float()).to(x_I.dtype)


def _num_rows(x_I: torch.Tensor) -> int:
    return x_I.numel() // x_I.shape[-1]


def _shape(
    x_I: torch.Tensor,
    values: torch.Tensor,
    scale_OG: torch.Tensor,
    zero_OG: torch.Tensor | None,
    bias_O: torch.Tensor | None,
) -> torch.Tensor:
    torch._check(x_I.dtype == torch.float32)
    return x_I.new_empty((*x_I.shape[:-1], values.shape[0]))


KERNEL = HostKernel(
    schema="neuron_host::quantized_linear(Tensor x, Tensor values, Tensor scale, Tensor? zero, Tensor? bias) -> Tensor",
    title="products with quantized weights on the host",
    source=Path(__file__).with_name("quantized.cpp"),
    shape=_shape,
    is_in=is_in,
    flags=_VNNI_FLAGS if "vnni" in probe_cpu().extensions else (),
)
STREAMED = KERNEL.operator
