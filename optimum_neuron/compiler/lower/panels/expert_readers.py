"""Operators of a body that read weights of experts, [E, O, I]: whether they can read them in panels, and how.

Experts are picked, and each multiplies its row; or every expert multiplies all rows, and results may be summed over
experts (`models/common/experts.py`). It does not depend on programs or files.

    find_products(weight)           # {product: place of the picked experts, or None}, whether inputs come first
    take_panels(body, weight)       # in place

Shape legend: E experts, O outputs, I inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from . import outputs_first
from .experts import multiply_all, multiply_picked, sum_of_all

_ATEN = torch.ops.aten
_SUM_DIMS = [[0, 2], [0, 1]]

Products = dict[fx.Node, fx.Node | None]
"""Products of experts, each with the numbers of the experts that were picked; None for all experts."""


def find_products(weight: fx.Node) -> tuple[Products, bool] | None:
    """Return the products that read a weight, and whether its inputs come before its outputs.

    None means that an operator cannot read panels, or that products read it both ways.
    """
    value = weight.meta["val"]
    found = list(_products(weight, None, False))
    orders = {is_outputs_first for _, _, is_outputs_first in found}
    if len(orders) != 1 or any(product is None for product, _, _ in found):
        return None
    is_transposed = not orders.pop()
    if value.shape[1 if is_transposed else 2] % 2:
        return None
    return {product: index for product, index, _ in found if product is not None}, is_transposed


def take_panels(body: fx.GraphModule, weight: fx.Node) -> None:
    """Let all products of a weight read it in panels, in place."""
    found = find_products(weight)
    assert found is not None
    products, is_transposed = found
    if is_transposed:
        with body.graph.inserting_after(weight):
            weight = body.graph.call_function(outputs_first, (weight,))
    for product, index in products.items():
        rows = product.args[0]
        if index is not None:
            product.target, product.args = multiply_picked, (rows, weight, index)
        else:
            is_sum = product.target == _ATEN.tensordot.default
            product.target, product.args = sum_of_all if is_sum else multiply_all, (rows, weight)


def _products(
    node: fx.Node, index: fx.Node | None, is_outputs_first: bool
) -> Iterator[tuple[fx.Node | None, fx.Node | None, bool]]:
    """Return the products behind a weight, some of its experts, or their transpose; None for another operator."""
    for user in node.users:
        if user.target == _ATEN.index.Tensor and index is None and not is_outputs_first:
            picked = _index(user)
            yield from _products(user, picked, False) if picked is not None else [(None, None, False)]
        elif user.target == _ATEN.transpose.int and not is_outputs_first and _swaps_last(user):
            yield from _products(user, index, True)
        else:
            yield (user if _is_product(user, node, index) else None), index, is_outputs_first


def _index(node: fx.Node) -> fx.Node | None:
    """Return the numbers of experts that a lookup picks."""
    indices: Any = node.args[1]
    index = indices[0] if len(indices) == 1 else None
    is_list = isinstance(index, fx.Node) and index.meta["val"].dim() == 1 and index.meta["val"].dtype == torch.int64
    return index if is_list else None


def _swaps_last(node: fx.Node) -> bool:
    dims: Any = node.args[1:]
    return {dim % 3 for dim in dims} == {1, 2}


def _is_product(node: fx.Node, weight: fx.Node, index: fx.Node | None) -> bool:
    """Return whether a node multiplies rows by weights, of picked experts or of all."""
    if node.target not in (_ATEN.matmul.default, _ATEN.tensordot.default):
        return False
    x, factor, *dims = node.args
    if factor is not weight or x is weight or not isinstance(x, fx.Node):
        return False
    rows = x.meta["val"]
    if rows.dtype != torch.bfloat16:
        return False
    if node.target == _ATEN.tensordot.default:
        return index is None and rows.dim() == 3 and [list(each) for each in dims] == _SUM_DIMS
    return rows.dim() in (2, 3) if index is None else rows.dim() == 3 and rows.shape[1] == 1
