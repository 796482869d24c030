"""Products with bfloat16 weights in panels, for any number of rows, as an operator that Inductor calls from C++.

A step of a decoder reads each weight once. In panels it is read in order, whichever number of sequences there are: 8
rows of SmolLM2's widest weight took 0.25 ms on a core of an AMD EPYC, with oneDNN 0.31 and as the weight lies in a file
0.42; 64 rows 1.14, with oneDNN 1.23. `prepare.py` writes the panels when a model is loaded, if all subgraphs take them.

    torch.ops.neuron_host.panel_linear(x, panels(weight_OI))

`readers.py` finds the operators of a body that can read panels, and lets them; `experts.py` has the products of
experts.

Shape legend: O outputs, I inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import fx

from ....weights import empty as empty_pages
from ..choose import CpuFeatures, compiler_knows_cpu, probe_cpu
from ..kernel import HostKernel

PANEL = 16
MAX_SUMS_BYTES = 30 * 1024**2
"""Of float32 sums that are rounded afterwards: the C library takes blocks of 32 MiB from the system each time."""


def is_supported(features: CpuFeatures) -> bool:
    """Return whether the CPU has the dot products or tiles that the kernel was measured with."""
    has_compiler = "amx" not in features.extensions or compiler_knows_cpu()
    return features.isa == "AVX512" and features.has_bf16_dot and has_compiler


def compiler_flags(features: CpuFeatures) -> tuple[str, ...]:
    """Return the flags for instructions that a kernel uses beyond those of its vector extension."""
    if features.isa != "AVX512" or not features.has_bf16_dot:
        return ()
    return ("-mamx-tile", "-mamx-bf16") if "amx" in features.extensions else ("-mavx512bf16",)


def multiply(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return a linear layer of bfloat16 numbers in float32."""
    total = LINEAR(x.contiguous(), weight)
    return total if bias is None else total + bias.float()


def multiply_in_bfloat16(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return a linear layer of bfloat16 numbers, rounded; the float32 sums of many rows are made in parts."""
    if x.shape[:-1].numel() <= _num_rows_of_part(weight.shape[0]):
        return multiply(x, weight, bias).to(torch.bfloat16)
    parts = rows_in_parts(weight.shape[0], x.reshape(-1, x.shape[-1]))
    return torch.cat([multiply(rows, weight, bias).to(torch.bfloat16) for (rows,) in parts]).view(*x.shape[:-1], -1)


def rows_in_parts(num_outputs: int, *tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Return the rows of tensors in parts whose float32 sums take `MAX_SUMS_BYTES` at most."""
    return zip(*(tensor.split(_num_rows_of_part(num_outputs)) for tensor in tensors), strict=True)


def _num_rows_of_part(num_outputs: int) -> int:
    return max(MAX_SUMS_BYTES // (num_outputs * 4), 1)


def outputs_first(weight: torch.Tensor) -> torch.Tensor:
    """Return a weight in panels that has inputs before outputs, in the shape that products take."""
    return weight.view(*weight.shape[:-2], weight.shape[-1], weight.shape[-2])


def look_up(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows of a weight in panels, as `torch.nn.functional.embedding` does of one as it lies in a file."""
    num_outputs, num_inputs = weight.shape
    panel = index // PANEL
    width = (num_outputs - panel * PANEL).clamp(max=PANEL)
    begin = panel * (PANEL * num_inputs) + index % PANEL * 2
    pairs = begin[..., None] + torch.arange(num_inputs // 2) * (2 * width[..., None])
    places = pairs[..., None] + torch.arange(2)
    return weight.view(-1)[places].flatten(-2)


def panels(weight: torch.Tensor, *, is_transposed: bool = False) -> torch.Tensor:
    """Return a weight in panels, in the shape of the weight; with three dimensions, the weight of each expert.

    Args:
        weight: [O, I] or [E, O, I].
    """
    result = empty_pages(weight.shape, weight.dtype)
    for one, to in zip(weight.view(-1, *weight.shape[-2:]), result.view(-1, *weight.shape[-2:]), strict=True):
        _write_panels(one.t() if is_transposed else one, to.view(-1).view(torch.int32))
    return result


def _write_panels(weight_OI: torch.Tensor, to: torch.Tensor) -> None:
    """Write a weight in panels, as pairs of inputs."""
    num_outputs, num_inputs = weight_OI.shape
    whole = num_outputs // PANEL * PANEL
    pairs = weight_OI.contiguous().view(torch.int32)
    for source, part in (
        (pairs[:whole].view(-1, PANEL, num_inputs // 2), to[: whole * num_inputs // 2]),
        (pairs[whole:][None], to[whole * num_inputs // 2 :]),
    ):
        part.view(source.shape[0], num_inputs // 2, source.shape[1]).copy_(source.transpose(1, 2))


def _shape(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    torch._check(x.dtype == weight.dtype == torch.bfloat16 and x.shape[-1] == weight.shape[1])
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32)


def is_in(body: fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether a body calls the kernel; `readers.take_panels` makes it do so."""
    return any(node.target in (LINEAR, multiply, multiply_in_bfloat16) for node in body.graph.nodes)


KERNEL = HostKernel(
    schema="neuron_host::panel_linear(Tensor x, Tensor weight) -> Tensor",
    title="products with weights in panels on the host",
    source=Path(__file__).with_name("panels.cpp"),
    shape=_shape,
    is_in=is_in,
    flags=compiler_flags(probe_cpu()),
)
LINEAR = KERNEL.operator
