"""Convolutions of 3x3 filters, stride 1, with a quarter of the products, as an operator that Inductor calls from C++.

Winograd's F(4x4, 3x3) in float32, with filters that are transformed as they are read, so weights take no more memory.
On one core of an AMD EPYC, 512 channels of 64 x 64 pixels took 68 ms in float32, with oneDNN 177; in bfloat16 58 and
87, although oneDNN has dot products there. Results differ from exact ones 2 to 3 times as much as those of oneDNN in
float32, far less than a rounding to bfloat16. Infinities and NaN reach the other pixels of a tile. `prepare.py`
writes the weights when a model is loaded.

    torch.ops.neuron_host.winograd(x, chunks(weight_OCHW), bias_O, other, padding, relu)

Shape legend: O outputs, C inputs, H and W the filter's height and width.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ..choose import CpuFeatures
from ..kernel import TARGET_FLAGS, HostKernel

CHUNK = 64
"""Outputs that are computed together."""
_TILE = 4
_INPUTS = 16

# Products of vectors for a pair of a channel and a vector of outputs: measured, with the time of other work in them.
_OF_TILE, _OF_PATCH, _OF_FILTER = 43, 300, 200
_OF_PIXEL = {True: 4.7, False: 9.3}  # of oneDNN, with and without dot products of 16-bit operands


def is_faster(features: CpuFeatures, x: torch.Tensor, weight_OCHW: torch.Tensor, where: tuple[Any, ...]) -> bool:
    """Return whether the kernel takes a convolution, and takes less time than oneDNN.

    Args:
        where: stride, padding, dilation, and groups, as torch has them.
    """
    stride, padding, dilation, groups = where
    num_outputs, num_inputs, *size = weight_OCHW.shape
    is_plain = set(stride) == set(dilation) == {1} and len(set(padding)) == 1 and groups == 1
    is_known = features.isa in TARGET_FLAGS and x.dtype == weight_OCHW.dtype in (torch.float32, torch.bfloat16)
    fits = size == [3, 3] and x.dim() == 4 and num_outputs % CHUNK == 0 and num_inputs % _INPUTS == 0
    has_dot = x.dtype == torch.bfloat16 and features.has_bf16_dot
    if not (is_plain and is_known and fits) or (has_dot and "amx" in features.extensions):
        return False
    sides = [length + 2 * padding[0] - 2 for length in x.shape[2:]]
    num_tiles = x.shape[0] * math.prod(math.ceil(side / _TILE) for side in sides)
    products = num_tiles * (_OF_TILE + _OF_PATCH / num_inputs + _OF_PATCH / num_outputs) + _OF_FILTER
    return products < x.shape[0] * math.prod(sides) * _OF_PIXEL[has_dot]


def where_of(node: fx.Node) -> tuple[Any, ...]:
    """Return stride, padding, dilation, and groups of a call of torch's convolution."""
    defaults: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], 1)
    given = tuple(node.args[3:])
    return given + defaults[len(given) :]


def chunks(weight_OCHW: torch.Tensor) -> torch.Tensor:
    """Return filters as the kernel reads them: of a chunk of outputs those of each input, outputs innermost."""
    num_outputs, num_inputs = weight_OCHW.shape[:2]
    parts = weight_OCHW.reshape(num_outputs // CHUNK, CHUNK, num_inputs, 9)
    return parts.permute(0, 2, 3, 1).contiguous().view(weight_OCHW.shape)


def convolve(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, other: torch.Tensor | None, *options: Any
) -> torch.Tensor:
    """Return a convolution with the options of `onednn.CONVOLUTION`; `weight` is as `chunks` returns it."""
    _, padding, _, _, relu, _ = options
    x, other = (one if one is None else one.contiguous(memory_format=torch.channels_last) for one in (x, other))
    return CONVOLUTION(x, weight, bias, other, padding[0], relu)


def _shape(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, other: torch.Tensor | None, padding: int, _: bool
) -> torch.Tensor:
    shape = (x.shape[0], weight.shape[0], x.shape[2] + 2 * padding - 2, x.shape[3] + 2 * padding - 2)
    given = [one for one in (weight, bias, other) if one is not None]
    torch._check(all(one.dtype == x.dtype for one in given) and x.shape[1] == weight.shape[1])
    torch._check(other is None or other.shape == shape)
    for image in (x, other):
        torch._check(image is None or image.is_contiguous(memory_format=torch.channels_last))
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


def is_in(body: fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether host code of a body may call the kernel."""
    convolutions = body.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
    for node in convolutions:
        x, weight_OCHW = (argument.meta["val"] for argument in node.args[:2])
        if is_faster(features, x, weight_OCHW, where_of(node)):
            return True
    return False


KERNEL = HostKernel(
    schema="neuron_host::winograd(Tensor x, Tensor weight, Tensor? bias, Tensor? other, int padding, bool relu) "
    "-> Tensor",
    title="convolutions of 3x3 filters on the host",
    source=Path(__file__).with_name("winograd.cpp"),
    shape=_shape,
    is_in=is_in,
)
CONVOLUTION = KERNEL.operator
