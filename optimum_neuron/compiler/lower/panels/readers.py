"""Operators of a body that read a weight: whether they can read it in panels, and how.

A weight in panels takes the place of the weight, so all its readers have to agree: products and lookups of one layout.
It does not depend on programs or files.

    find_readers(body)     # {2: Readers(...)}
    take_panels(body, {2})              # in place: products and lookups read panels
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Literal

import torch
from torch import fx

from . import KERNEL, expert_readers, experts, look_up, multiply, multiply_in_bfloat16, outputs_first

_ATEN = torch.ops.aten
_FACTORS = {_ATEN.linear.default: (0, 1), _ATEN.mm.default: (0, 1), _ATEN.addmm.default: (1, 2)}
"""Products, and the positions of their rows and of their weight."""

KERNELS = {"panels": KERNEL, "expert_panels": experts.KERNEL}
"""Kernels that read weights in panels, by the kind of the weight's preparation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readers:
    """Operators that read a weight, and can read it in panels."""

    products: tuple[fx.Node, ...]
    """Linear layers and matrix products."""
    lookups: tuple[fx.Node, ...] = ()
    is_transposed: bool = False
    """Whether the weight has its inputs in dimension 0, as checkpoints of GPT-2 store it."""

    kind: Literal["panels", "expert_panels"] = "panels"
    """Whether it is one weight, or one of each expert."""

    @property
    def max_rows(self) -> int:
        """Rows of the largest product; 0 if there are lookups only."""
        rows = (product.args[_FACTORS.get(product.target, (0, 1))[0]] for product in self.products)
        return max((x.meta["val"].shape[:-1].numel() for x in rows), default=0)


def find_readers(body: fx.GraphModule) -> dict[int, Readers]:
    """Return the positions of weights that a body can take in panels, with the operators that read them.

    The CPU must be one that `panels.is_supported` takes.
    """
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    found = {index: _readers(node) for index, node in enumerate(places)}
    return {index: readers for index, readers in found.items() if readers is not None}


def take_panels(body: fx.GraphModule, positions: Collection[int]) -> None:
    """Let a body read the weights at some positions in panels, in place."""
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    for position in positions:
        weight = places[position]
        if weight.meta["val"].dim() == 3:
            expert_readers.take_panels(body, weight)
            continue
        readers = _readers(weight)
        assert readers is not None
        for lookup in readers.lookups:
            _replace(lookup, look_up, (weight, lookup.args[1]))
        if readers.is_transposed:
            with body.graph.inserting_after(weight):
                weight = body.graph.call_function(outputs_first, (weight,))
        for product in readers.products:
            x, bias = _rows(product), _bias(product)
            source = _bfloat16_source(x)
            if source is None:
                _replace(product, multiply_in_bfloat16, (x, weight, bias))
            else:
                _replace(product, multiply, (source, weight, bias))
    unread = (_ATEN.t.default, _ATEN.to.dtype, _ATEN.index.Tensor, _ATEN.transpose.int)
    for node in reversed(body.graph.nodes):
        if not node.users and node.target in unread:
            body.graph.erase_node(node)
    body.recompile()


def _replace(node: fx.Node, function: object, args: tuple[object, ...]) -> None:
    node.target, node.args, node.kwargs = function, args, {}


def _readers(weight: fx.Node) -> Readers | None:
    """Return the operators that read a weight, or None if one of them cannot read panels."""
    value = weight.meta["val"]
    is_weight = isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 and value.dim() in (2, 3)
    if not is_weight or not weight.users:
        return None
    if value.dim() == 3:
        found = expert_readers.find_products(weight)
        return (
            None if found is None else Readers(kind="expert_panels", products=tuple(found[0]), is_transposed=found[1])
        )
    lookups = [user for user in weight.users if user.target == _ATEN.embedding.default and user.args[0] is weight]
    linear = _all([_linear(user, weight) for user in weight.users if user not in lookups])
    if linear is not None and value.shape[1] % 2 == 0:
        return Readers(products=linear, lookups=tuple(lookups))
    products = _all([product for user in weight.users for product in _transposed(user, weight)])
    if products is not None and value.shape[0] % 2 == 0:
        return Readers(products=products, is_transposed=True)
    return None


def _all(nodes: Sequence[fx.Node | None]) -> tuple[fx.Node, ...] | None:
    found = tuple(node for node in nodes if node is not None)
    return found if len(found) == len(nodes) else None


def _linear(reader: fx.Node, weight: fx.Node) -> fx.Node | None:
    """Return the linear layer that reads a weight, or its float32 copy; None for other readers."""
    if _is_cast(reader) and len(reader.users) == 1:  # a product in float32 of bfloat16 numbers
        (product,) = reader.users
        is_product = product.target == _ATEN.linear.default and product.args[1] is reader
        return product if is_product and _bfloat16_source(_rows(product)) is not None else None
    return reader if reader.target == _ATEN.linear.default and _is_product(reader, weight) else None


def _transposed(reader: fx.Node, weight: fx.Node) -> list[fx.Node | None]:
    """Return the products that read a weight with its inputs in dimension 0; None stands for another reader."""
    if reader.target == _ATEN.t.default:
        return [_linear(user, reader) for user in reader.users]
    is_product = reader.target in (_ATEN.mm.default, _ATEN.addmm.default) and _is_product(reader, weight)
    return [reader if is_product and not reader.kwargs else None]


def _is_product(node: fx.Node, weight: fx.Node) -> bool:
    _, position = _FACTORS[node.target]
    x, bias = _rows(node), _bias(node)
    is_bfloat16 = x.meta["val"].dtype == torch.bfloat16
    return node.args[position] is weight and x is not weight and bias is not weight and is_bfloat16


def _rows(product: fx.Node) -> fx.Node:
    x = product.args[_FACTORS[product.target][0]]
    assert isinstance(x, fx.Node)
    return x


def _bias(product: fx.Node) -> object:
    others = [argument for index, argument in enumerate(product.args) if index not in _FACTORS[product.target]]
    return others[0] if others else None


def _is_cast(node: fx.Node) -> bool:
    return node.target == _ATEN.to.dtype and node.args[1] == torch.float32


def _bfloat16_source(node: fx.Node) -> fx.Node | None:
    source = node.args[0] if _is_cast(node) else None
    return source if isinstance(source, fx.Node) and source.meta["val"].dtype == torch.bfloat16 else None
