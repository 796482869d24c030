"""Which operations share memory: an operation that writes keeps its place among those that read the same tensor.

Sharing is read from the schemas of operators, and from the few that return their input without saying so.
"""

from __future__ import annotations

from collections.abc import Sequence

from .graph import Operation, Value
from .run import schema_of

_MAY_RETURN_INPUT = (
    *("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::to", "aten::type_as", "aten::contiguous"),
    *("aten::reshape", "aten::flatten", "aten::detach", "prim::ListConstruct", "prim::ListUnpack"),
    *("prim::TupleConstruct", "prim::TupleUnpack", "aten::clamp", "aten::expand_as", "aten::view_as"),
)
"""Operators whose result may be their input, whatever their schema says."""


class Memory:
    """The sets of values that may share memory, and the operations that write to them."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._parents: dict[Value, Value] = {}
        self.writers: list[Operation] = []
        """Operations that write to an input."""
        for operation in operations:
            shared = self._shared(operation)
            for value in shared:
                for output in operation.outputs:
                    self._join(value, output)
        self._made_first = {self.root(v) for one in operations for v in one.outputs}
        outside = (v for one in operations for v in one.inputs if v.producer is None and not v.is_constant)
        self._made_first -= {self.root(value) for value in outside}
        written = {self.root(value) for operation in self.writers for value in self.written(operation)}
        self._touching: dict[Value, list[Operation]] = {root: [] for root in written}
        for operation in operations:
            for root in {self.root(value) for value in (*operation.inputs, *operation.outputs)}:
                if root in written:
                    self._touching[root].append(operation)

    def root(self, value: Value) -> Value:
        """Return the value that stands for all that share its memory."""
        while value in self._parents:
            value = self._parents[value]
        return value

    def written(self, operation: Operation) -> list[Value]:
        """Return the inputs that one of the writers writes to."""
        pairs = zip(operation.inputs, schema_of(operation).arguments, strict=True)
        return [value for value, argument in pairs if argument.alias_info is not None and argument.alias_info.is_write]

    def makers(self, value: Value) -> list[Operation]:
        """Return the operations whose results share the memory of a value that is written."""
        root = self.root(value)
        touching = self._touching.get(root, [])
        return [one for one in touching if any(self.root(output) is root for output in one.outputs)]

    def is_made(self, value: Value) -> bool:
        """Return whether the memory of a value is made by an operation, and not given to the model."""
        return value in self._made_first or self.root(value) in self._made_first

    def before(self, operation: Operation) -> list[Operation]:
        """Return the operations that have to run before one, because one of them writes what the other touches."""
        found = []
        for root in {self.root(value) for value in (*operation.inputs, *operation.outputs)}:
            touching = self._touching.get(root, [])
            earlier = touching[: touching.index(operation)] if operation in touching else []
            writes = {id(other) for other in self.writers}
            found += earlier if id(operation) in writes else [other for other in earlier if id(other) in writes]
        return found

    def _shared(self, operation: Operation) -> list[Value]:
        schema = schema_of(operation)
        if schema is None:
            return list(operation.inputs) if operation.kind in _MAY_RETURN_INPUT else []
        pairs = list(zip(operation.inputs, schema.arguments, strict=True))
        if any(argument.alias_info is not None and argument.alias_info.is_write for _, argument in pairs):
            self.writers.append(operation)
        aliased = [value for value, argument in pairs if argument.alias_info is not None]
        return aliased or ([operation.inputs[0]] if operation.kind in _MAY_RETURN_INPUT else [])

    def _join(self, left: Value, right: Value) -> None:
        left, right = self.root(left), self.root(right)
        if left is not right:
            self._parents[right] = left
