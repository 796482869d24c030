"""Divide a TorchScript graph: which operations run on a core, and in which of the segments there.

Operations of the core that wait for the same operations of the CPU are one segment, so a model has as few as its CPU
operations allow: those of the CPU that wait for segment n-1 run before segment n. Bookkeeping (sizes, lists, numbers)
is computed by each part that reads it. The size of a core's result is fixed, so nothing waits for it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Sequence

from .effects import Memory
from .graph import Operation, Program, Value
from .packed import internal_values

_SIZES = """
    aten::size aten::dim aten::numel aten::len aten::Int aten::Float aten::Bool aten::ScalarImplicit aten::IntImplicit
    aten::FloatImplicit aten::scalarImplicit aten::item aten::device aten::is_floating_point
    aten::format aten::warn
"""
_BOOKKEEPING = frozenset(_SIZES.split())
_OF_SHAPE = frozenset({"aten::size", "aten::dim", "aten::numel"})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What decides beside the operators of the core."""

    supports: Callable[[Operation], bool]
    """Whether the core can run an operation."""
    chosen: Callable[[Operation], bool]
    """Whether the user's function takes it for the core."""
    minimum_segment_size: int = 2
    single_fusion_ratio_threshold: float = 0.6


class Plan:
    """Places of all operations; `forced` are those that a reason beside the operator sends to the CPU."""

    def __init__(self, program: Program, limits: Limits) -> None:
        self.program, self.limits = program, limits
        self.arithmetic = [one for one in program.operations if not _is_free(one) and not _is_unpack(one)]
        """Operations that compute."""
        numbers = _numbers(program)
        self.arithmetic = [one for one in self.arithmetic if not numbers.issuperset(one.outputs)]
        self.static = numbers
        """Values that follow from shapes, which never change on a core."""
        self.supported = {one for one in self.arithmetic if limits.supports(one)}
        self._counted, self._returned = set(self.arithmetic), set(program.outputs)
        self._memory = Memory(program.operations)
        self._forced: set[Operation] = {one for one in self.supported if not limits.chosen(one)}
        self.levels: dict[Operation, int] = {}
        self.segments: list[list[Operation]] = []
        """Operations of each segment of the core, in order."""
        self._settle()

    def on_core(self, operation: Operation) -> bool:
        """Return whether an operation runs on a core."""
        return operation in self.supported and operation not in self._forced

    def is_free(self, operation: Operation) -> bool:
        """Return whether whoever reads the result computes it."""
        return operation not in self._counted and not _is_unpack(operation)

    def is_fixed(self, operation: Operation) -> bool:
        """Return whether an operation reads only the shape of what a core makes, which is the example's."""
        read = operation.inputs[0] if operation.kind in _OF_SHAPE else None
        return read is not None and read not in self.static and self._is_made_on_core(read.producer)

    def _is_made_on_core(self, operation: Operation | None) -> bool:
        if operation is not None and _is_unpack(operation):
            return self._is_made_on_core(operation.inputs[0].producer)
        return operation is not None and self.on_core(operation)

    def send_to_cpu(self, operations: Iterable[Operation]) -> None:
        """Run operations on the CPU after all, and divide again."""
        self._forced.update(operations)
        self._settle()

    def _settle(self) -> None:
        while True:
            self._number()
            misplaced = self._misplaced() or self._small() or self._beside_the_largest()
            if not misplaced:
                return
            self._forced.update(misplaced)

    def _number(self) -> None:
        """Give each operation its level: that of its segment, or the segment that it runs before."""
        after: dict[Value, tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
        levels: dict[Operation, int] = {}
        done: dict[Operation, tuple[int, int]] = {}
        for operation in self.program.operations:
            reads = [after[value] for value in operation.inputs]
            reads += [done[other] for other in self._memory.before(operation)]
            for_core = max((core for core, _ in reads), default=0)
            for_cpu = max((cpu for _, cpu in reads), default=0)
            if self.is_fixed(operation):
                result = (0, 0)
            elif self.static.issuperset(operation.outputs):
                result = (0, for_cpu)
            elif self.is_free(operation):
                result = (for_core, for_cpu)
            elif _is_unpack(operation):
                result = after[operation.inputs[0]]
                levels[operation] = result[0]
            elif self.on_core(operation):
                levels[operation], result = for_core, (for_core, for_core + 1)
            else:
                levels[operation], result = for_cpu, (for_cpu, for_cpu)
            done[operation] = result
            for value in operation.outputs:
                after[value] = result
        self.levels = levels
        by_level: dict[int, list[Operation]] = {}
        for operation in self.program.operations:
            if self.on_core(operation):
                by_level.setdefault(levels[operation], []).append(operation)
        self.segments = [by_level[level] for level in sorted(by_level)]

    def segment_of(self, operation: Operation | None) -> int | None:
        """Return the level of the segment that makes a value, None for the CPU and for no operation."""
        if operation is None:
            return None
        if _is_unpack(operation):
            return self.segment_of(operation.inputs[0].producer)
        return self.levels[operation] if self.on_core(operation) else None

    def _misplaced(self) -> set[Operation]:
        """Operations whose results or effects could not leave their segment."""
        wrong: set[Operation] = set()
        for operation in self._memory.writers:
            for value in self._memory.written(operation):
                makers = [one for one in self._memory.makers(value) if one in self._counted]
                is_made_inside = {self.segment_of(one) for one in makers} == {self.segment_of(operation)}
                if any(map(self.on_core, makers)) and not (is_made_inside and self._memory.is_made(value)):
                    wrong.update(one for one in makers if self.on_core(one))
        for operation in self.program.operations:
            internal, segment = internal_values(operation), self.segment_of(operation)
            for value in operation.outputs if not self.is_free(operation) else ():
                readers = self._readers(value)
                is_inside = readers <= {segment}
                if segment is not None and not is_inside and (value in internal or not value.is_tensor):
                    wrong.add(operation)
                if segment is None and value in internal:
                    wrong.update(user for user in value.users if self.on_core(user))
        return wrong & self.supported - self._forced

    def _readers(self, value: Value) -> set[int | None]:
        """Return the segments that read a value, also through bookkeeping; None is the CPU."""
        segments: set[int | None] = {None} if value in self._returned else set()
        for user in value.users:
            if self.static.issuperset(user.outputs) and user.outputs:
                through = [self._readers(output) for output in user.outputs]
                segments.update({None} if any(None in readers for readers in through) else set())
            elif self.is_free(user):
                segments.update(*(self._readers(output) for output in user.outputs))
            elif _is_unpack(user):
                segments.add(self.segment_of(value.producer))
            else:
                segments.add(self.segment_of(user))
        return segments

    def _small(self) -> list[Operation]:
        small = [one for one in self.segments if _num_nodes(one) < self.limits.minimum_segment_size]
        return small[0] if small else []

    def _beside_the_largest(self) -> list[Operation]:
        """Segments beside one that has most of the operations."""
        largest = max(self.segments, key=len, default=[])
        if len(largest) <= self.limits.single_fusion_ratio_threshold * len(self.arithmetic):
            return []
        return [operation for segment in self.segments if segment is not largest for operation in segment]


def _num_nodes(segment: Sequence[Operation]) -> int:
    """Nodes of a segment: operations, and the constants, weights, and lists that they read."""
    inside = {value for operation in segment for value in operation.outputs}
    read = {value for operation in segment for value in operation.inputs} - inside
    own = {value for value in read if value.is_constant or value.weight is not None or not value.is_tensor}
    return len(segment) + len(own)


def _is_unpack(operation: Operation) -> bool:
    """Return whether an operation takes a list apart, which whoever makes the list does too."""
    if operation.kind not in ("prim::ListUnpack", "prim::TupleUnpack", "aten::__getitem__"):
        return False
    producer = operation.inputs[0].producer
    return producer is None or producer.kind not in _BOOKKEEPING


def _is_free(operation: Operation) -> bool:
    return operation.kind in _BOOKKEEPING or (
        operation.kind.startswith("prim::") and operation.kind != "prim::CallMethod"
    )


def _numbers(program: Program) -> set[Value]:
    """Values that are computed from sizes alone."""
    numbers: set[Value] = set()
    for operation in program.operations:
        made_of_numbers = any(value in numbers for value in operation.inputs) and all(
            value in numbers or value.is_constant for value in operation.inputs
        )
        source = operation.inputs[0].producer if operation.kind == "aten::select" else None
        of_packed = source is not None and operation.inputs[0] in internal_values(source)
        is_number = operation.kind in _BOOKKEEPING or operation.kind == "prim::NumToTensor"
        computes = made_of_numbers and (operation.kind.startswith("prim::") or _is_scalar(operation))
        if is_number or computes or (of_packed and _is_scalar(operation)):
            numbers.update(operation.outputs)
    return numbers


def _is_scalar(operation: Operation) -> bool:
    """Return whether an operation makes single numbers; trace writes the shapes of what it recorded."""
    types = [value.type for value in operation.outputs]
    return all(one.kind() != "TensorType" or (hasattr(one, "sizes") and one.sizes() == []) for one in types)
