"""Complex tensors of a graph as pairs of real numbers: a NeuronCore has no complex arithmetic.

A complex tensor of shape [...] becomes a real one of shape [..., 2]. The rules cover what rotary positions are made of:
products, sums, conjugates, and views. A graph with another operator of complex tensors, or with complex tensors of the
host, stays as it is, and the checks name what the chip refuses. This module does not depend on options or the border.

    graph_module, example_inputs, complex_inputs, complex_results = write_pairs(graph_module, example_inputs)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ...upstream.torch import TracingContext, disable_current_modes

aten = torch.ops.aten


def is_complex(value: object) -> bool:
    """Return whether a value is a complex tensor of the device."""
    return isinstance(value, torch.Tensor) and value.is_complex() and value.device.type == "neuron"


class Written(NamedTuple):
    """A graph of AOTAutograd without complex tensors, and the places where it had them."""

    graph_module: fx.GraphModule
    example_inputs: list[Any]
    inputs: tuple[int, ...] = ()
    """Places of complex inputs, which are pairs now."""
    results: tuple[int, ...] = ()
    """Places of complex results, which are pairs now."""


def write_pairs(graph_module: fx.GraphModule, example_inputs: Sequence[Any]) -> Written:
    """Write the complex tensors of a graph as pairs; a graph that has none, or an operator without a rule, is kept."""
    kept = Written(graph_module, list(example_inputs))
    if not any(is_complex(node.meta.get("val")) for node in graph_module.graph.nodes):
        return kept
    try:
        written = _Writer(graph_module).write()
    except _NoRule:
        return kept
    returned = next(node for node in graph_module.graph.nodes if node.op == "output").args[0]
    return Written(
        written,
        [_pairs_of(value) if is_complex(value) else value for value in example_inputs],
        tuple(place for place, value in enumerate(example_inputs) if is_complex(value)),
        tuple(place for place, node in enumerate(returned) if _is_complex_node(node)),
    )


def _pairs_of(value: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(value.resolve_conj())


def report_strides(results: Sequence[int]) -> None:
    """Correct what Inductor told AOTAutograd about the layout of complex results: it knows them as pairs."""
    context = TracingContext.try_get()
    if context is None or not context.output_strides:
        return
    for place in results:
        strides = context.output_strides[place]
        context.output_strides[place] = tuple(stride // 2 for stride in strides[:-1])


class _NoRule(Exception):  # noqa: N818  (it never leaves this module)
    """A complex tensor meets an operator without a rule."""


class _Writer:
    """Copies a graph node by node."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self._old = graph_module
        self._graph = fx.Graph()
        self._constants: dict[str, torch.Tensor] = {}
        self._made: dict[fx.Node, fx.Node] = {}
        self._node: fx.Node

    def write(self) -> fx.GraphModule:
        for node in self._old.graph.nodes:
            self._node = node
            values = [node.meta.get("val"), *(other.meta.get("val") for other in node.all_input_nodes)]
            if node.op == "call_function" and any(isinstance(v, torch.Tensor) and v.is_complex() for v in values):
                self._made[node] = self._pair(node)
            else:
                self._made[node] = self._copy(node)
        written = fx.GraphModule(self._old, self._graph)
        written.meta = self._old.meta
        for name, value in self._constants.items():
            setattr(written, name, value)
        return written

    def _copy(self, node: fx.Node) -> fx.Node:
        copied = self._graph.node_copy(node, self._made.__getitem__)
        if node.target is aten.view.default:
            copied.target = aten.reshape.default  # pairs may lie in another order than the complex tensor did
        if is_complex(node.meta.get("val")):
            copied.meta["val"] = _pairs_of(node.meta["val"])
            if node.op == "get_attr":
                with disable_current_modes():
                    self._constants[node.target] = _pairs_of(getattr(self._old, node.target))
        return copied

    def _pair(self, node: fx.Node) -> fx.Node:
        rule = _RULES.get(node.target)
        if rule is None or any(
            isinstance(v, torch.Tensor) and v.is_complex() and v.device.type != "neuron"
            for v in (node.meta.get("val"), *(other.meta.get("val") for other in node.all_input_nodes))
        ):
            raise _NoRule
        return rule(self, *node.args, **node.kwargs)

    def of(self, node: fx.Node) -> fx.Node:
        """The new node for an old one: of a complex tensor, its pairs."""
        return self._made[node]

    def call(self, target: Any, *args: Any, **keywords: Any) -> fx.Node:
        """Add a call, with the place of the present node in the user's code."""
        called = self._graph.call_function(target, args, keywords)
        called.meta = dict(self._node.meta)
        with self._node.meta["val"].fake_mode:
            called.meta["val"] = target(*fx.map_arg(args, lambda node: node.meta["val"]), **keywords)
        return called

    def parts(self, node: fx.Node) -> tuple[fx.Node, fx.Node]:
        """Real and imaginary parts of a complex tensor."""
        pair = self.of(node)
        return self.call(aten.select.int, pair, -1, 0), self.call(aten.select.int, pair, -1, 1)

    def joined(self, real: fx.Node, imaginary: fx.Node) -> fx.Node:
        """Pairs of real and imaginary parts."""
        columns = [self.call(aten.unsqueeze.default, part, -1) for part in (real, imaginary)]
        return self.call(aten.cat.default, columns, -1)


_Rule = Callable[..., fx.Node]


def _is_complex_node(value: object) -> bool:
    return isinstance(value, fx.Node) and is_complex(value.meta.get("val"))


def _multiply(writer: _Writer, left: object, right: object) -> fx.Node:
    if not _is_complex_node(left):
        left, right = right, left
    if _is_complex_node(right):
        (a, b), (c, d) = writer.parts(left), writer.parts(right)
        real = writer.call(aten.sub.Tensor, _product(writer, a, c), _product(writer, b, d))
        return writer.joined(real, writer.call(aten.add.Tensor, _product(writer, a, d), _product(writer, b, c)))
    return _scaled(aten.mul.Tensor)(writer, left, right)


def _product(writer: _Writer, left: fx.Node, right: fx.Node) -> fx.Node:
    return writer.call(aten.mul.Tensor, left, right)


def _scaled(target: object) -> _Rule:
    """Rule of a product or quotient of a complex tensor and real numbers."""

    def rule(writer: _Writer, value: object, factor: object) -> fx.Node:
        if isinstance(factor, complex) or not _is_complex_node(value) or _is_complex_node(factor):
            raise _NoRule
        if isinstance(factor, fx.Node):
            is_scalar, factor = factor.meta["val"].ndim == 0, writer.of(factor)
            factor = factor if is_scalar else writer.call(aten.unsqueeze.default, factor, -1)
        return writer.call(target, writer.of(value), factor)

    return rule


def _summed(target: object) -> _Rule:
    def rule(writer: _Writer, left: object, right: object) -> fx.Node:
        if _is_complex_node(left) and isinstance(right, int | float):
            real, imaginary = writer.parts(left)
            return writer.joined(writer.call(target, real, right), imaginary)
        if not (_is_complex_node(left) and _is_complex_node(right)):
            raise _NoRule
        return writer.call(target, writer.of(left), writer.of(right))

    return rule


def _conjugate(writer: _Writer, value: fx.Node) -> fx.Node:
    real, imaginary = writer.parts(value)
    return writer.joined(real, writer.call(aten.neg.default, imaginary))


def _polar(writer: _Writer, size: fx.Node, angle: fx.Node) -> fx.Node:
    length, turn = writer.of(size), writer.of(angle)
    real, imaginary = (writer.call(wave, turn) for wave in (aten.cos.default, aten.sin.default))
    return writer.joined(_product(writer, length, real), _product(writer, length, imaginary))


def _same(writer: _Writer, value: fx.Node, **keywords: object) -> fx.Node:
    return writer.of(value)


def _of_part(index: int) -> _Rule:
    return lambda writer, value: writer.parts(value)[index]


def _elementwise(target: object) -> _Rule:
    return lambda writer, value, **keywords: writer.call(target, writer.of(value))


def _sized(target: object, last: int = 2) -> _Rule:
    return lambda writer, value, sizes, **keywords: writer.call(target, writer.of(value), [*sizes, last])


def _reinterpreted(writer: _Writer, value: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A view of pairs as twice as many real numbers, or of real numbers as half as many pairs."""
    *sizes, last = value.meta["val"].shape
    if _is_complex_node(value) and dtype.is_complex:
        raise _NoRule
    sizes = [*sizes, last * 2] if _is_complex_node(value) else [*sizes, last // 2, 2]
    return writer.call(aten.reshape.default, writer.of(value), sizes)


def _of_dims(target: object, num_dims: int = 1, extra: int = 0) -> _Rule:
    """Rule of a view whose first arguments after the tensor are dimensions; `extra` for a result with one more."""

    def rule(writer: _Writer, value: fx.Node, *args: object) -> fx.Node:
        args = args or (0,)
        rank = value.meta["val"].ndim + extra
        dims = [dim % rank if rank else 0 for dim in args[:num_dims]]
        others = [writer.of(arg) if isinstance(arg, fx.Node) else arg for arg in args[num_dims:]]
        return writer.call(target, writer.of(value), *dims, *others)

    return rule


def _zeros(
    writer: _Writer, sizes: Sequence[int], value: object, *, device: torch.device, **keywords: object
) -> fx.Node:
    if value != 0:
        raise _NoRule
    return writer.call(aten.full.default, [*sizes, 2], 0, dtype=torch.float32, device=device)


def _scattered(target: Any) -> _Rule:
    """Rule of writing one complex tensor into another."""

    def rule(writer: _Writer, value: Any, part: Any, dim: int = 0, *args: Any) -> fx.Node:
        if not (_is_complex_node(value) and _is_complex_node(part)):
            raise _NoRule
        return writer.call(target, writer.of(value), writer.of(part), dim % value.meta["val"].ndim, *args)

    return rule


def _sum(writer: _Writer, value: fx.Node, dims: Sequence[int], keepdim: bool = False) -> fx.Node:
    rank = value.meta["val"].ndim
    return writer.call(aten.sum.dim_IntList, writer.of(value), [dim % rank for dim in dims or range(rank)], keepdim)


def _permuted(writer: _Writer, value: fx.Node, dims: Sequence[int]) -> fx.Node:
    rank = value.meta["val"].ndim
    return writer.call(aten.permute.default, writer.of(value), [*(dim % rank for dim in dims), rank])


def _indexed(writer: _Writer, value: fx.Node, indices: Sequence[fx.Node | None]) -> fx.Node:
    taken = [None if index is None else writer.of(index) for index in indices]
    return writer.call(aten.index.Tensor, writer.of(value), taken)


def _concatenated(writer: _Writer, values: Sequence[fx.Node], dim: int = 0) -> fx.Node:
    if not all(_is_complex_node(value) for value in values):
        raise _NoRule
    return writer.call(aten.cat.default, [writer.of(v) for v in values], dim % values[0].meta["val"].ndim)


_RULES: dict[Any, _Rule] = {
    aten.view_as_complex.default: _same,
    aten.view_as_real.default: _same,
    aten.complex.default: lambda writer, real, imaginary: writer.joined(writer.of(real), writer.of(imaginary)),
    aten.polar.default: _polar,
    aten.real.default: _of_part(0),
    aten.imag.default: _of_part(1),
    aten.mul.Tensor: _multiply,
    aten.div.Tensor: _scaled(aten.div.Tensor),
    aten.add.Tensor: _summed(aten.add.Tensor),
    aten.sub.Tensor: _summed(aten.sub.Tensor),
    aten.neg.default: _elementwise(aten.neg.default),
    aten.clone.default: _elementwise(aten.clone.default),
    aten.alias.default: _elementwise(aten.alias.default),
    aten.detach.default: _elementwise(aten.detach.default),
    aten.view.default: _sized(aten.reshape.default),
    aten.reshape.default: _sized(aten.reshape.default),
    aten._unsafe_view.default: _sized(aten._unsafe_view.default),
    aten.expand.default: _sized(aten.expand.default),
    aten.repeat.default: _sized(aten.repeat.default, last=1),
    aten.slice.Tensor: _of_dims(aten.slice.Tensor),
    aten.select.int: _of_dims(aten.select.int),
    aten.unsqueeze.default: _of_dims(aten.unsqueeze.default, extra=1),
    aten.squeeze.dim: _of_dims(aten.squeeze.dim),
    aten.transpose.int: _of_dims(aten.transpose.int, num_dims=2),
    aten.index_select.default: _of_dims(aten.index_select.default),
    aten.permute.default: _permuted,
    aten.full.default: _zeros,
    aten.slice_scatter.default: _scattered(aten.slice_scatter.default),
    aten.select_scatter.default: _scattered(aten.select_scatter.default),
    aten.sum.dim_IntList: _sum,
    aten.view.dtype: _reinterpreted,
    aten.index.Tensor: _indexed,
    aten.cat.default: _concatenated,
    aten._conj.default: _conjugate,
    aten.conj_physical.default: _conjugate,
    aten._conj_physical.default: _conjugate,
}
