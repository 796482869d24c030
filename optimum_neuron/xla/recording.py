"""A recorded graph as a torch.fx graph of ATen operators without side effects, for the compiler's rules and estimates.

Operators that write are replaced by those that return their result, as AOTAutograd does, and results of an input are
copied into it at the end. A tensor that lies elsewhere in its storage than what was computed there is a view of it.

    module = rebuild(read_tape(functions, closed.num_words), read_slots(functions, closed.num_slots))
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..upstream.torch import FakeTensorMode, OpOverload
from .places import PLACES
from .tape import HostOperand, Operand, Operation, SlotState, operands

_DTYPES = {
    **dict(enumerate((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32))),
    **{7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool},
    **{15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 25: torch.float8_e5m2fnuz},
    **{26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32, 29: torch.uint64},
}
"""By their numbers in `c10::ScalarType`."""
_ON_DEVICE = {**_DTYPES, 7: torch.float32}
"""The same in a compiled graph: PyTorch/XLA gives the Neuron compiler float32 for float64."""
_DTYPE_NAMES = ("dtype", "out_dtype", "output_dtype")
_PLACES_OF_TENSORS = ("layout", "device", "pin_memory", "generator")
_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
"""By their numbers in `c10::MemoryFormat`."""
_RANDOM_FROM = getattr(torch.ops.aten.random, "from")
_COLLECTIVES = "c10d::"
"""Operators of torch's process groups, of which the graph has what they exchange."""


def rebuild(operations: Sequence[Operation], slots: Sequence[SlotState]) -> fx.GraphModule:
    """Return the graph of a tape."""
    with FakeTensorMode() as mode:
        builder = _Builder(slots, mode)
        for operation in operations:
            if operation.name.startswith(_COLLECTIVES):
                builder.exchange(operation)
            else:
                builder.add(operation)
        return builder.finish()


@functools.cache
def overload_of(name: str) -> OpOverload:
    """The operator of a name such as "aten::add.Tensor"."""
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


@functools.cache
def pure(target: OpOverload) -> OpOverload | None:
    """The operator that returns what this one writes; itself if it writes nothing, None if torch has no such one."""
    schema = target._schema
    if not schema.is_mutable:
        return target
    namespace, _, name = schema.name.partition("::")
    needed = [(one.name, str(one.type)) for one in schema.arguments if not one.is_out]
    packet = getattr(getattr(torch.ops, namespace), name if _is_out(target) else name.rstrip("_"), None)
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        taken = [(one.name, str(one.type)) for one in found._schema.arguments]
        rest = found._schema.arguments[len(needed) :]
        takes = taken[: len(needed)] == needed and all(one.has_default_value() for one in rest)
        if not found._schema.is_mutable and takes:
            return found
    return None


def _is_out(target: OpOverload) -> bool:
    return any(argument.is_out for argument in target._schema.arguments)


def is_view(target: OpOverload) -> bool:
    """Return whether an operator shares the memory of an argument, and writes nothing."""
    return (
        any(one.alias_info is not None and not one.alias_info.is_write for one in target._schema.arguments)
        and not target._schema.is_mutable
    )


class _Builder:
    def __init__(self, slots: Sequence[SlotState], mode: FakeTensorMode) -> None:
        self._slots, self._mode = slots, mode
        self._graph = fx.Graph()
        self._last: fx.Node | None = None
        self._num_inputs = 0
        self._nodes: dict[int, dict[Operand, fx.Node]] = {}
        """Tensors of each slot as it is now; the first one is what the others are views of."""
        self._inputs: dict[int, tuple[Operand, fx.Node]] = {}
        self._location: dict[str, Any] = {}

    def exchange(self, operation: Operation) -> None:
        """Add a collective of torch's process groups, as one of torch_xla's over its tensors."""
        tensors = [self._tensor(one) for one in operands(operation.arguments)]
        if tensors and hasattr(torch.ops.xla, "all_reduce_"):  # not where no group is of the backend xla
            reduces = "reduce" in operation.name
            target = overload_of("xla::all_reduce_" if reduces else "xla::broadcast_")
            node = self._graph.call_function(target, (tensors, *(("sum", 1.0) if reduces else (0,)), []))
            node.meta = {"val": ()}

    def add(self, operation: Operation) -> None:
        """Add one call."""
        place = PLACES.at(operation.place)
        self._location = {"stack_trace": f'  File "{place.file}", line {place.line}, in call\n'} if place.file else {}
        if place.module or place.kind:
            self._location["nn_module_stack"] = {place.module: (place.module, place.kind)}
        target = overload_of(operation.name)
        functional = pure(target)
        schema = target._schema.arguments
        arguments = [
            _plain(argument.name, self._value(value))
            for argument, value in zip(schema, operation.arguments, strict=True)
        ]
        written = [
            value
            for argument, value in zip(schema, operation.arguments, strict=True)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        called = functional or target
        named = {one.name: value for one, value in zip(schema, arguments, strict=True)}
        positional = tuple(named[one.name] for one in called._schema.arguments if not one.kwarg_only)
        keywords = {one.name: named.get(one.name) for one in called._schema.arguments if one.kwarg_only}
        keywords = {name: value for name, value in keywords.items() if value is not None}
        if called is _RANDOM_FROM:  # code of a graph cannot name it, for `from` is a word of Python
            called, positional = torch.ops.aten.random.to, (positional[0], positional[2])
        results: list[Any] = list(operation.results)
        if functional is not None and functional is not target:
            results = results or list(written)
            # `_foreach_add_` returns nothing and writes lists, `add_` returns what it writes.
            if len(results) > len(functional._schema.returns):
                results = list(written)
        node = self._graph.call_function(called, positional, keywords)
        node.meta = {**self._location, "val": self._fakes(results)}
        if functional is target or functional is None:
            self._bind(node, results, is_view=is_view(target))
        else:
            self._write(node, results)

    def finish(self) -> fx.GraphModule:
        """Copy what was computed into inputs, return the other results, and make a module."""
        self._location = {}
        outputs = []
        for slot, state in enumerate(self._slots):
            if not state.is_output or slot not in self._nodes:
                continue
            if slot in self._inputs:
                first, placeholder = self._inputs[slot]
                if self._nodes[slot].get(first) is not placeholder:
                    self._call(torch.ops.aten.copy_.default, (placeholder, self._tensor(first)), first)
            else:
                outputs.append(next(iter(self._nodes[slot].values())))
        self._graph.output(tuple(dict.fromkeys(outputs)))
        return fx.GraphModule(torch.nn.Module(), self._graph)

    def _value(self, value: object) -> Any:
        if isinstance(value, Operand):
            return self._tensor(value)
        if isinstance(value, HostOperand):
            return self._placeholder(Operand(-1, value.dtype, 0, value.size, value.stride))
        return [self._value(item) for item in value] if isinstance(value, list) else value

    def _fake(self, like: Operand) -> Any:
        return torch.empty_strided(like.size, like.stride, dtype=_ON_DEVICE[like.dtype], device="cpu")

    def _fakes(self, results: Sequence[Any]) -> Any:
        fakes = [
            self._fake(one) if isinstance(one, Operand) else self._fakes_of_list(one) if one is not None else None
            for one in results
        ]
        return fakes[0] if len(fakes) == 1 else tuple(fakes)

    def _fakes_of_list(self, values: list[Any]) -> list[Any]:
        return [self._fake(one) if isinstance(one, Operand) else None for one in values]

    def _call(self, target: object, arguments: tuple[Any, ...], like: Operand) -> fx.Node:
        node = self._graph.call_function(target, arguments)
        node.meta = {**self._location, "val": self._fake(like)}
        return node

    def _placeholder(self, like: Operand) -> fx.Node:
        """A new input, before everything that computes."""
        with self._graph.inserting_after(self._last):  # after None: at the beginning
            self._last = self._graph.placeholder(f"input_{self._num_inputs}")
        self._num_inputs += 1
        self._last.meta = {"val": self._fake(like)}
        return self._last

    def _tensor(self, at: Operand) -> fx.Node:
        """The node of a tensor, a view of what its slot has where there is none."""
        nodes = self._nodes.get(at.slot)
        if nodes is None:
            return self._first(at)
        if at not in nodes:
            base, node = next(iter(nodes.items()))
            nodes[at] = _Viewing(self._call, base, at).view(node)
        return nodes[at]

    def _first(self, at: Operand) -> fx.Node:
        state = self._slots[at.slot]
        itemsize = _DTYPES[at.dtype].itemsize
        whole = at
        if math.prod(at.size) * itemsize != state.size_bytes or not is_dense(at):
            whole = Operand(at.slot, at.dtype, 0, (state.size_bytes // itemsize,), (1,))
        if state.is_input:
            node = self._placeholder(whole)
            self._inputs[at.slot] = whole, node
        else:
            node = self._call(torch.ops.aten.empty.memory_format, (list(whole.size),), whole)
            node.kwargs = {"dtype": _ON_DEVICE[at.dtype]}
        self._nodes[at.slot] = {whole: node}
        return self._tensor(at)

    def _bind(self, node: fx.Node, results: Sequence[Any], *, is_view: bool) -> None:
        """Remember the results of an operator."""
        for index, result in enumerate(results):
            part = node if len(results) == 1 else None
            if isinstance(result, Operand):
                part = part or self._item(node, index, result)
                self._keep(result, part, is_view=is_view)
            elif isinstance(result, list):
                group = node if len(results) == 1 else self._group(node, index, result)
                for place, one in enumerate(result):
                    if isinstance(one, Operand):
                        self._keep(one, self._item(group, place, one), is_view=is_view)

    def _keep(self, result: Operand, node: fx.Node, *, is_view: bool) -> None:
        known = self._nodes.get(result.slot)
        if known is not None and (is_view or result in known):
            known.setdefault(result, node)
        elif known is None and (is_view or not self._slots[result.slot].is_input):
            self._nodes[result.slot] = {result: node}
        else:
            self._replace(result, node)

    def _item(self, node: fx.Node, index: int, like: Operand) -> fx.Node:
        return self._call(operator.getitem, (node, index), like)

    def _group(self, node: fx.Node, index: int, values: list[Any]) -> fx.Node:
        group = self._graph.call_function(operator.getitem, (node, index))
        group.meta = {**self._location, "val": self._fakes_of_list(values)}
        return group

    def _write(self, node: fx.Node, results: Sequence[Any]) -> None:
        """Put the results of an operator without side effects in the place of what the recorded one wrote."""
        flat: list[tuple[Operand, fx.Node]] = []
        for index, result in enumerate(results):
            source = node if len(results) == 1 else None
            if isinstance(result, Operand):
                flat.append((result, source or self._item(node, index, result)))
            elif isinstance(result, list):
                group = source or self._group(node, index, result)
                flat += [(one, self._item(group, place, one)) for place, one in enumerate(result) if one is not None]
        for at, new in flat:
            self._replace(at, new)

    def _replace(self, at: Operand, new: fx.Node) -> None:
        base = next(iter(self._nodes.get(at.slot, {at: None})))
        if math.prod(at.size) * _DTYPES[at.dtype].itemsize == self._slots[at.slot].size_bytes or at == base:
            self._nodes[at.slot] = {at: new}
        else:  # a part of it: what shares its memory is changed with it
            self._call(torch.ops.aten.copy_.default, (self._tensor(at), new), at)


def _plain(name: str, value: object) -> Any:
    """An argument as the graph has it: dtypes by name, and nothing that says where a tensor lies."""
    if name in _PLACES_OF_TENSORS:
        return None
    if name == "memory_format" and isinstance(value, int):
        return _FORMATS[value]
    return _ON_DEVICE.get(value, value) if name in _DTYPE_NAMES and isinstance(value, int) else value


def is_dense(at: Operand) -> bool:
    """Return whether elements lie side by side, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(at.size, at.stride, strict=True) if size != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def memory_order(at: Operand) -> list[int]:
    """Dimensions from the outermost in memory to the innermost."""
    return sorted(range(len(at.size)), key=lambda index: (-at.stride[index], -at.size[index]))


@dataclasses.dataclass(frozen=True)
class _Viewing:
    """Makes views of a tensor with operators that move nothing, where there are such."""

    call: Any
    base: Operand
    at: Operand

    def view(self, node: fx.Node) -> fx.Node:
        """The tensor `at` as a view of the tensor `base`."""
        base, at = self.base, self.at
        if _ON_DEVICE[base.dtype] != _ON_DEVICE[at.dtype]:
            node = self.call(torch.ops.aten.view.dtype, (node, _ON_DEVICE[at.dtype]), at)
        if math.prod(base.size) == math.prod(at.size) and is_dense(base) and is_dense(at) and base.offset == at.offset:
            return self._rearranged(node)
        return self.call(torch.ops.aten.as_strided.default, (node, list(at.size), list(at.stride), at.offset), at)

    def _rearranged(self, node: fx.Node) -> fx.Node:
        base, at = self.base, self.at
        outward, inward = memory_order(base), memory_order(at)
        if outward != list(range(len(outward))):
            node = self._permuted(node, base, outward)
        rows = _contiguous(at, [at.size[index] for index in inward])
        if list(rows.size) != [base.size[index] for index in outward]:
            node = self.call(torch.ops.aten.view.default, (node, list(rows.size)), rows)
        if inward != list(range(len(inward))):
            back = [inward.index(index) for index in range(len(inward))]
            node = self.call(torch.ops.aten.permute.default, (node, back), at)
        return node

    def _permuted(self, node: fx.Node, base: Operand, order: list[int]) -> fx.Node:
        like = _contiguous(base, [base.size[index] for index in order])
        return self.call(torch.ops.aten.permute.default, (node, order), like)


def _contiguous(like: Operand, size: Sequence[int]) -> Operand:
    stride = [math.prod(size[index + 1 :]) for index in range(len(size))]
    return dataclasses.replace(like, size=tuple(size), stride=tuple(stride))
