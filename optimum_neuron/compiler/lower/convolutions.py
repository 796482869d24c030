"""Fuses convolutions with the operators after them: batch normalization in the weights, addition and relu in the
kernel.

fuse(body, weights={1: "convolution", 6: "winograd"})
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from ...upstream.torch import OpOverload
from ..serialize import base_of
from . import onednn, winograd  # they register the operators that `fuse` writes

_ATEN = torch.ops.aten
_OPERATOR = onednn.CONVOLUTION
_OPERATORS = {"convolution": _OPERATOR, "winograd": winograd.convolve}
"""What computes a convolution, by the kind of preparation of its weight."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusedConvolution:
    """A convolution and the following operators that its kernel can do."""

    x: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    where: tuple[Any, ...]
    """Stride, padding, dilation, groups."""
    norm: fx.Node | None
    """Batch normalization of the result, all of whose parameters are arguments of the body."""
    other: fx.Node | None
    relu: bool
    """Whether the last step is relu."""
    last: fx.Node


def fused_convolution(node: fx.Node) -> FusedConvolution:
    """Follow a convolution while no other node reads the intermediate results."""
    x, weight, bias = (*node.args, None)[:3]
    where = winograd.where_of(node)
    assert isinstance(x, fx.Node) and isinstance(weight, fx.Node) and (bias is None or isinstance(bias, fx.Node))
    last, norm, other, relu = node, None, None, False
    after = _only_user(last)
    if after is not None and _is_foldable(after):
        last = norm = after
        after = _only_user(last)
    if after is not None and (other := _addend(last, after)) is not None:
        # The convolution is then computed where the addition is.
        if _is_written(x) or _is_written(other):
            other = None
        else:
            last = after
            after = _only_user(last)
    if after is not None and after.target in (_ATEN.relu.default, _ATEN.relu_.default):
        last, relu = after, True
    return FusedConvolution(x=x, weight=weight, bias=bias, where=where, norm=norm, other=other, relu=relu, last=last)


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_foldable(node: fx.Node) -> bool:
    if node.target != _ATEN.batch_norm.default:
        return False
    _, weight, bias, mean, var, training, *_ = node.args
    nodes = [argument for argument in (weight, bias, mean, var) if isinstance(argument, fx.Node)]
    return not training and len(nodes) == 4 and all(n.op == "placeholder" and len(n.users) == 1 for n in nodes)


def _addend(value: fx.Node, after: fx.Node) -> fx.Node | None:
    """Addend of `after` to `value`, if it is a plain sum of two tensors of one shape that writes to no other."""
    if after.target not in (_ATEN.add.Tensor, _ATEN.add_.Tensor) or after.kwargs:
        return None
    left, right = after.args
    if right is value and after.target == _ATEN.add_.Tensor:
        return None
    addend = right if left is value else left
    if not isinstance(addend, fx.Node) or addend is value:
        return None
    return addend if addend.meta["val"].shape == value.meta["val"].shape else None


def _is_written(node: fx.Node) -> bool:
    """Return whether an operator writes into a value in place."""
    return any(
        argument.alias_info is not None and argument.alias_info.is_write and user.args[index : index + 1] == (node,)
        for user in node.users
        if isinstance(user.target, OpOverload)
        for index, argument in enumerate(user.target._schema.arguments)
    )


def fuse(body: fx.GraphModule, weights: Mapping[int, str]) -> None:
    """Replace the convolutions whose weights are prepared, with the operators fused into them, in place.

    `weights` are the positions of these weights, and the kinds of their preparations.
    """
    placeholders = [node for node in body.graph.nodes if node.op == "placeholder"]
    prepared = {placeholders[position]: kind for position, kind in weights.items()}
    for node in list(body.graph.nodes):
        if node.target != _ATEN.conv2d.default or node.args[1] not in prepared:
            continue
        fused = fused_convolution(node)
        bias = fused.bias if fused.norm is None else fused.norm.args[2]
        with body.graph.inserting_before(fused.last):
            arguments = (fused.x, fused.weight, bias, fused.other, *fused.where, fused.relu, False)
            replacement = body.graph.call_function(_OPERATORS[prepared[fused.weight]], arguments)
        replacement.meta = dict(fused.last.meta)
        fused.last.replace_all_uses_with(replacement)
    body.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
    for node in body.graph.nodes:
        if node.target == _OPERATOR and _is_last_to_read(node, node.args[3]):
            node.update_arg(len(node.args) - 1, True)
    body.recompile()


def _is_last_to_read(node: fx.Node, other: object) -> bool:
    """Return whether the addend is a convolution's result that only `node` and nodes before it read."""
    if not isinstance(other, fx.Node) or other.target != _OPERATOR:
        return False
    before: set[fx.Node] = set()
    waiting = [argument for argument in node.all_input_nodes if argument is not other]
    while waiting:
        if (source := waiting.pop()) not in before and source is not other:
            before.add(source)
            waiting += source.all_input_nodes
    views = {view for view in node.graph.nodes if base_of(view) is other}
    return all(user is node or user in before or user in views for view in views for user in view.users)
