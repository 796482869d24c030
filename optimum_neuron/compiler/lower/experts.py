"""Experts of a prompt on the host: each one runs on the tokens that chose it.

A program has static shapes, so it runs every expert on all tokens, replaces by zero what was not chosen, and sums
(`models/common/experts.py`). Here, pairs of a token and an expert are sorted by expert: rows [P] stand where [E, N] of
all experts and tokens did, and a product calls oneDNN once for each expert that has rows. No token chooses an expert
twice, so the number of pairs is static.

    routed = find_routed(body)                                      # before tracing
    Pairs(index_NK, num_experts, values).sum_of_experts(node)       # in place of running a node of `routed`
    torch.ops.neuron_host.experts_linear(rows_PI, weight_EOI, expert_P)

Shape legend: E experts, N tokens, K experts of a token, P = N * K pairs, I inputs, O outputs, F width of an expert,
D hidden.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx

from ...upstream.torch import OpOverload
from ...weights import dequantize
from ..custom_operators import define
from ..quantized import QUANTIZED_EXPERTS, QUANTIZED_EXPERTS_SUM
from . import onednn, quantized_experts
from .panels import experts as panels

_ATEN = torch.ops.aten
MAX_STREAMED_PAIRS = 2
"""Up to so many rows for each expert on average, the time is that of reading weights, which oneDNN would pack first."""

_SUMS = (QUANTIZED_EXPERTS_SUM, panels.sum_of_all)
_CASTS = (_ATEN.to.dtype, _ATEN._to_copy.default)
_PARTS = (_ATEN.slice.Tensor, _ATEN.chunk.default, _ATEN.split.Tensor, _ATEN.split_with_sizes.default)
_WHERE = (_ATEN.where.ScalarOther, _ATEN.where.self)


def _shape(rows_PI: torch.Tensor, weight_EOI: torch.Tensor, expert_P: torch.Tensor) -> torch.Tensor:
    return rows_PI.new_empty((len(rows_PI), weight_EOI.shape[1]))


def _experts_linear(rows_PI: torch.Tensor, weight_EOI: torch.Tensor, expert_P: torch.Tensor) -> torch.Tensor:
    """Each row by the weight of its expert; compiled code calls the same of `experts.h`.

    Numbers of experts ascend; the rows of a number that is no expert become zeros.
    """
    out_PO = rows_PI.new_zeros((len(rows_PI), weight_EOI.shape[1]))
    first = 0
    for expert, run in itertools.groupby(expert_P.tolist()):
        end = first + len(list(run))
        if expert < len(weight_EOI):
            out_PO[first:end] = onednn.LINEAR(rows_PI[first:end], weight_EOI[expert], None)
        first = end
    return out_PO


EXPERTS_LINEAR = define(
    "neuron_host::experts_linear(Tensor rows, Tensor weight, Tensor expert) -> Tensor",
    fake=_shape,
    run=_experts_linear,
    any_strides=True,
)


def c_functions() -> dict[Any, list[str]]:
    """Operator to the C function that Inductor calls for it."""
    tensors = "AtenTensorHandle rows, AtenTensorHandle weight, AtenTensorHandle expert, AtenTensorHandle* result"
    return {EXPERTS_LINEAR: [f"AOTITorchError aoti_torch_cpu_experts_linear({tensors})"]}


def find_routed(body: fx.GraphModule) -> dict[fx.Node, fx.Node]:
    """Return the products of a body that sum over experts, each with the experts of each token [N, K]."""
    found = {}
    products = body.graph.find_nodes(op="call_function", target=_ATEN.tensordot.default)
    sums = [node for target in _SUMS for node in body.graph.find_nodes(op="call_function", target=target)]
    for node in [*products, *sums]:
        masked = next((source for source in _before_casts(node.args[0]) if source.target in _WHERE), None)
        is_sum = node.target in _SUMS or tuple(map(list, node.args[2:4])) == ([0, 2], [0, 1])
        if is_sum and masked is not None and masked.args[2] == 0 and (index := _index_of(masked)) is not None:
            found[node] = index
    return found


def _before_casts(node: fx.Node) -> Iterator[fx.Node]:
    """A node, and the nodes that it is cast from."""
    yield node
    while node.target in _CASTS:
        node = node.args[0]
        yield node


def _index_of(masked: fx.Node) -> fx.Node | None:
    """The index [N, K] in `where((index == arange(E)).any(-1), ...)`."""
    chosen = masked.args[0]
    if not isinstance(chosen, fx.Node) or chosen.target != _ATEN.any.dim or chosen.args[1] not in (-1, 2):
        return None
    equal: Any = chosen.args[0]
    if equal.target != _ATEN.eq.Tensor:
        return None
    index, numbers = equal.args
    while numbers.target == _ATEN.unsqueeze.default:
        numbers = numbers.args[0]
    is_range = numbers.target == _ATEN.arange.default and numbers.args[0] == masked.meta["val"].shape[0]
    return index if is_range and index.meta["val"].dim() == 2 else None


class Pairs:
    """Pairs of a token and an expert that it chose, by expert, and values of a body for these."""

    def __init__(self, index_NK: torch.Tensor, num_experts: int, values: Mapping[fx.Node, Any]) -> None:
        """Sort the pairs; those of numbers that are no experts come last.

        Args:
            values: values of the nodes of the body before the sum.
        """
        index_P, self._values = index_NK.flatten(), values
        is_expert_P = (index_P >= 0) & (index_P < num_experts)
        self._expert_P, order_P = torch.sort(torch.where(is_expert_P, index_P, num_experts), stable=True)
        self._sizes = (num_experts, len(index_NK))
        # Of one expert in place of none: its values are finite, and the product leaves them out.
        self._index = (self._expert_P.clamp(max=num_experts - 1), order_P // index_NK.shape[1])
        self._place_NK = order_P.argsort().view_as(index_NK)
        self._of_pairs: dict[fx.Node, Any] = {}

    def sum_of_experts(self, node: fx.Node) -> torch.Tensor:
        """Return the value [N, D] of a node of `find_routed`."""
        hidden, down = node.args[:2]
        assert isinstance(hidden, fx.Node) and isinstance(down, fx.Node)
        if node.target == QUANTIZED_EXPERTS_SUM:
            out_PD = self._quantized(node)[0]
        elif node.target is panels.sum_of_all:
            out_PD = panels.multiply(self._of(hidden)[0], self._values[down], self._expert_P)
        else:
            out_PD = self._product(self._of(hidden)[0], self._values[down])
        return out_PD[self._place_NK].float().sum(1).to(out_PD.dtype)

    def _product(self, rows_PI: torch.Tensor, weight_EIO: torch.Tensor) -> torch.Tensor:
        """Each row by the weight of its expert; zeros where that is none."""
        num_experts = self._sizes[0]
        if len(rows_PI) > MAX_STREAMED_PAIRS * num_experts:
            return EXPERTS_LINEAR(rows_PI, weight_EIO.transpose(1, 2), self._expert_P)
        # Inductor multiplies and sums while it reads the weights: no copy, and the next row finds them in the caches.
        out_PO = torch.matmul(rows_PI[:, None], weight_EIO[self._index[0]])[:, 0]
        return torch.where((self._expert_P < num_experts)[:, None], out_PO, 0.0)

    def _quantized(self, node: fx.Node) -> torch.Tensor:
        """Each row by the quantized weight of its expert: [1, P, O]."""
        rows_PI = self._of(node.args[0])[0]
        parts = [self._values[part] if isinstance(part, fx.Node) else None for part in node.args[1:4]]
        values, scale, zero = parts
        assert values is not None and scale is not None
        num_experts = self._sizes[0]
        if len(rows_PI) > MAX_STREAMED_PAIRS * num_experts:
            weight_EOI = dequantize(values, scale, zero)
            return EXPERTS_LINEAR(rows_PI.float(), weight_EOI, self._expert_P).to(rows_PI.dtype)[None]
        index = self._index[0]
        own = [None if part is None else part[index] for part in (scale, zero)]
        out_PO = quantized_experts.own_weights(rows_PI[:, None], values[index], *own)[:, 0]
        return torch.where((self._expert_P < num_experts)[:, None], out_PO, 0.0)[None]

    def _of(self, argument: object) -> Any:
        """What stands for an argument: [1, P, ...] for a tensor that can be broadcast to [E, N, ...]."""
        if isinstance(argument, (list, tuple)):
            return [self._of(part) for part in argument]
        if not isinstance(argument, fx.Node):
            return argument
        if argument not in self._of_pairs:
            self._of_pairs[argument] = self._computed(argument)
        return self._of_pairs[argument]

    def _computed(self, node: fx.Node) -> Any:
        value = self._values[node]
        if node.target is operator.getitem:
            return self._of(node.args[0])[node.args[1]]
        first = value[0] if isinstance(value, (list, tuple)) else value
        if tuple(first.shape[:2]) != self._sizes or first.dim() != 3:
            return self._taken(value)
        if node.target == QUANTIZED_EXPERTS:
            return self._quantized(node)
        if node.target is panels.multiply_all:
            left, right = node.args
            assert isinstance(right, fx.Node)
            return panels.multiply(self._of(left)[0], self._values[right], self._expert_P)[None]
        if node.target == _ATEN.matmul.default:
            left, right = node.args
            assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
            if self._values[right].shape[:1] == self._sizes[:1] and self._values[right].dim() == 3:
                return self._product(self._of(left)[0], self._values[right])[None]
        if _is_by_element(node):
            return node.target(*self._of(node.args), **node.kwargs)
        return self._taken(value)

    def _taken(self, value: Any) -> Any:
        """Rows of a tensor that was computed for all experts and tokens, or is the same for all of some."""
        if isinstance(value, (list, tuple)):
            return [self._taken(part) for part in value]
        value = value[(None,) * (3 - value.dim())]
        index = [own if size > 1 else 0 for own, size in zip(self._index, value.shape, strict=False)]
        rows = value[tuple(index)]
        return rows.view(1, -1, rows.shape[-1])


def _is_by_element(node: fx.Node) -> bool:
    """Whether experts and tokens do not meet in an operator."""
    if node.target in _PARTS:
        dim = node.args[-1] if node.target != _ATEN.slice.Tensor else node.args[1]
        return len(node.args) > 1 and not node.kwargs and dim in (-1, 2)
    if not isinstance(node.target, OpOverload):
        return False
    return node.target in (*_CASTS, *_WHERE) or torch.Tag.pointwise in node.target.tags
