"""Products with bfloat16 weights in panels, for any number of rows, as an operator that Inductor calls from C++.

A step of a decoder reads each weight once. In panels it is read in order, whichever number of sequences there are: 8
rows of SmolLM2's widest weight took 0.25 ms on a core of an AMD EPYC, with oneDNN 0.31 and as the weight lies in a file
0.42; 64 rows 1.14, with oneDNN 1.23. `prepare.py` writes the panels when a model is loaded, if all subgraphs take them.

    take_panels(body, {2})                                  # in place: products and lookups read panels
    torch.ops.neuron_host.panel_linear(x, panels(weight_OI))

Shape legend: O outputs, I inputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from pathlib import Path

import torch
from torch import fx

from ....weights import empty as empty_pages
from ..choose import CpuFeatures, probe_cpu
from ..handles import Handle, Handles, tensors_of
from ..kernel import HostKernel

PANEL = 16
"""Outputs of a panel."""

_ATEN = torch.ops.aten
_LIBRARY = torch.library.Library("neuron_host", "FRAGMENT")
_LIBRARY.define("panel_linear(Tensor x, Tensor weight) -> Tensor")
LINEAR = torch.ops.neuron_host.panel_linear.default


def is_supported(features: CpuFeatures) -> bool:
    """Return whether the CPU has the dot products that the kernel was measured with, and no tiles, which are faster."""
    return features.isa == "AVX512" and features.has_bf16_dot and "amx" not in features.extensions


def find_readers(body: fx.GraphModule, features: CpuFeatures) -> dict[int, int]:
    """Return the positions of weights that a body can take in panels, with the rows of the products they are in.

    A weight without products is in lookups only; its number of rows is 0.
    """
    if not is_supported(features):
        return {}
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    readers = {index: _rows_of_readers(node) for index, node in enumerate(places)}
    return {index: max(rows) for index, rows in readers.items() if rows}


def _rows_of_readers(weight: fx.Node) -> list[int]:
    """Return the rows of the products of each reader; nothing if one of them cannot take panels."""
    value = weight.meta["val"]
    is_matrix = isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 and value.dim() == 2
    if not is_matrix or value.shape[1] % 2:
        return []
    rows = [_rows_of_reader(user, weight) for user in weight.users]
    return [] if None in rows else [number for number in rows if number is not None]


def _rows_of_reader(node: fx.Node, weight: fx.Node) -> int | None:
    if node.target == _ATEN.embedding.default and node.args[0] is weight:
        return 0
    if _is_cast(node) and len(node.users) == 1:  # a product in float32 of bfloat16 numbers
        (product,) = node.users
        is_product = product.target == _ATEN.linear.default and product.args[1] is node
        return _num_rows(product) if is_product and _bfloat16_source(product.args[0]) is not None else None
    is_product = node.target == _ATEN.linear.default and node.args[1] is weight and node.args[0] is not weight
    return _num_rows(node) if is_product and node.args[0].meta["val"].dtype == torch.bfloat16 else None


def _num_rows(product: fx.Node) -> int:
    return product.args[0].meta["val"].shape[:-1].numel()


def _is_cast(node: fx.Node) -> bool:
    return node.target == _ATEN.to.dtype and node.args[1] == torch.float32


def _bfloat16_source(node: fx.Node) -> fx.Node | None:
    source = node.args[0] if _is_cast(node) else None
    return source if isinstance(source, fx.Node) and source.meta["val"].dtype == torch.bfloat16 else None


def take_panels(body: fx.GraphModule, positions: Collection[int]) -> None:
    """Let a body read the weights at some positions in panels, in place."""
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    for position in positions:
        weight = places[position]
        for reader in list(weight.users):
            if reader.target == _ATEN.embedding.default:
                _replace(reader, look_up, (weight, reader.args[1]))
            elif reader.target == _ATEN.linear.default:
                _replace(reader, _linear_in_bfloat16, (reader.args[0], weight, *reader.args[2:]))
            else:
                (product,) = reader.users
                x = product.args[0]
                _replace(product, _linear, (_bfloat16_source(x), weight, *product.args[2:]))
                for cast in (reader, x):
                    if not cast.users:
                        body.graph.erase_node(cast)
    body.recompile()


def _replace(node: fx.Node, function: object, args: tuple[object, ...]) -> None:
    node.target, node.args, node.kwargs = function, args, {}


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    total = LINEAR(x.contiguous(), weight)
    return total if bias is None else total + bias.float()


def _linear_in_bfloat16(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return _linear(x, weight, bias).to(torch.bfloat16)


def look_up(weight: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Return rows of a weight in panels, as `torch.nn.functional.embedding` does of one as it lies in a file."""
    num_outputs, num_inputs = weight.shape
    panel = index // PANEL
    width = (num_outputs - panel * PANEL).clamp(max=PANEL)
    begin = panel * (PANEL * num_inputs) + index % PANEL * 2
    pairs = begin[..., None] + torch.arange(num_inputs // 2) * (2 * width[..., None])
    places = pairs[..., None] + torch.arange(2)
    return weight.view(-1)[places].flatten(-2)


def panels(weight_OI: torch.Tensor) -> torch.Tensor:
    """Return a weight in panels, in the shape of the weight."""
    num_outputs, num_inputs = weight_OI.shape
    whole = num_outputs // PANEL * PANEL
    result = empty_pages(weight_OI.shape, weight_OI.dtype)
    pairs = weight_OI.contiguous().view(torch.int32)
    to = result.view(-1).view(torch.int32)
    for source, part in (
        (pairs[:whole].view(-1, PANEL, num_inputs // 2), to[: whole * num_inputs // 2]),
        (pairs[whole:][None], to[whole * num_inputs // 2 :]),
    ):
        part.view(source.shape[0], num_inputs // 2, source.shape[1]).copy_(source.transpose(1, 2))
    return result


@torch.library.register_fake("neuron_host::panel_linear", lib=_LIBRARY)
def _shape(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    torch._check(x.dtype == weight.dtype == torch.bfloat16 and x.shape[-1] == weight.shape[1])
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=torch.float32)


@torch.library.impl(_LIBRARY, "panel_linear", "CPU")
def _run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    _shape(x, weight)
    owner = Handles([x.contiguous(), weight])
    result = Handle()
    if KERNEL.load(probe_cpu().isa)(*owner.array[:2], ctypes.byref(result)):
        raise MemoryError("a product with a weight in panels found no memory")
    return tensors_of([result.value])[0]


def is_in(body: fx.GraphModule, features: CpuFeatures) -> bool:
    """Return whether a body calls the kernel; `take_panels` makes it do so."""
    return any(node.target in (LINEAR, _linear, _linear_in_bfloat16) for node in body.graph.nodes)


KERNEL = HostKernel(
    title="products with weights in panels on the host",
    operator=LINEAR,
    arguments=("AtenTensorHandle x", "AtenTensorHandle weight", "AtenTensorHandle* result"),
    source=Path(__file__).with_name("panels.cpp"),
    is_in=is_in,
    flags=("-mavx512bf16",) if is_supported(probe_cpu()) else (),
)
"""The kernel."""
