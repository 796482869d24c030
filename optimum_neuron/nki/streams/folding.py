"""Loops whose iterations are alike, but for numbers that grow by equal steps, become one body that is repeated.

A kernel is traced iteration by iteration. Two iterations are alike if they have the same instructions on the same
tensors, or on tensors that each of them made for itself and nothing else uses. Iterations that differ, such as the
first one of some loops, stay as they are.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from .document import Affine, Allocate, Columns, Constant, Copy, Gather, Loop, Moved, Node, Places, Register, Step, View


@dataclasses.dataclass
class Mark:
    """Where the iterations of a loop begin in a list of nodes."""

    starts: list[int]
    end: int = 0
    """End of the last one that ended."""


def folded(nodes: Sequence[Node], marks: Sequence[Mark], kept: Collection[int] = ()) -> tuple[Node, ...]:
    """Return the nodes of a trace with its loops folded.

    Args:
        marks: its loops. One that overlaps another in part, because they ran in turns, is not folded.
        kept: tensors that are used after the trace, or elsewhere.
    """
    ran = [mark for mark in marks if len(mark.starts) > 1 and mark.end > mark.starts[0]]
    nested: list[Mark] = []
    around: list[Mark] = []
    for mark in sorted(ran, key=lambda mark: (mark.starts[0], -mark.end)):
        while around and around[-1].end <= mark.starts[0]:
            around.pop()
        if not around or _is_within(mark, around[-1]):
            nested.append(mark)
            around.append(mark)
    return tuple(_Folder(nodes, nested, kept).part(0, len(nodes)))


def _is_within(inner: Mark, outer: Mark) -> bool:
    """Return whether a loop lies within one iteration of another."""
    number = bisect.bisect_right(outer.starts, inner.starts[0])
    return inner.end <= [*outer.starts[number : number + 1], outer.end][0]


class _Folder:
    def __init__(self, nodes: Sequence[Node], marks: Sequence[Mark], kept: Collection[int]) -> None:
        self._nodes = nodes
        # An outer loop comes before the loops in it, which may begin at the same node.
        self._marks, self._begins = marks, [mark.starts[0] for mark in marks]
        self._last = _last_uses(nodes) | dict.fromkeys(kept, len(nodes))
        self._done: set[int] = set()

    def part(self, start: int, end: int) -> list[Node]:
        """Return the nodes of a range, with the loops in it folded."""
        result: list[Node] = []
        place = start
        for number in range(bisect.bisect_left(self._begins, start), bisect.bisect_left(self._begins, end)):
            mark = self._marks[number]
            if number in self._done or mark.starts[0] < place or mark.end > end:
                continue
            self._done.add(number)
            result += self._nodes[place : mark.starts[0]]
            result += self._loop(mark)
            place = mark.end
        return [*result, *self._nodes[place:end]]

    def _loop(self, mark: Mark) -> list[Node]:
        bounds = list(zip(mark.starts, [*mark.starts[1:], mark.end], strict=True))
        bodies = [tuple(self.part(start, end)) for start, end in bounds]
        shapes = [_Shape.of(body, end, self._last) for body, (_, end) in zip(bodies, bounds, strict=True)]
        result: list[Node] = []
        place = 0
        while place < len(bodies):
            count, growth = _alike(shapes, place)
            if count > 1:
                result.append(Loop(count, tuple(_grown(bodies[place], iter(growth)))))
            else:
                result += bodies[place]
            place += count
        return result


MOVING: dict[type, tuple[str, ...]] = {
    Columns: ("view", "index"),
    Constant: ("view",),
    Copy: ("target", "source"),
    Gather: ("indices",),
    Moved: ("first", "index"),
    Places: (),
    Register: ("value",),
    Step: ("operands",),
    View: ("offset",),
}
"""Fields with numbers that may grow from one iteration to the next; in other fields iterations are equal."""
FIXED = {
    kind: tuple(field.name for field in dataclasses.fields(kind) if field.name not in ("tensor", *moving))
    for kind, moving in MOVING.items()
}


_PLACED = (Gather, Moved, Places, View)


def _last_uses(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the last node that uses each tensor."""
    last: dict[int, int] = {}
    for place, node in enumerate(nodes):
        _note(node, place, last)
    return last


def _note(value: Any, place: int, last: dict[int, int]) -> None:
    if isinstance(value, (*_PLACED, Allocate)):
        last[value.tensor] = place
    for item in value if isinstance(value, tuple) else [getattr(value, name) for name in MOVING.get(type(value), ())]:
        if type(item) is not str:
            _note(item, place, last)


@dataclasses.dataclass(frozen=True)
class _Shape:
    """One iteration: what must be equal in others, and the numbers that may grow."""

    key: tuple[Any, ...] | None
    """None if it cannot be repeated, because tensors that it makes are used after it."""
    numbers: np.ndarray

    @classmethod
    def of(cls, body: Sequence[Node], end: int, last: dict[int, int]) -> _Shape:
        numbers: list[int] = []
        own: dict[int, int] = {}
        key = tuple(_key(node, own, numbers) for node in body)
        escapes = any(last[tensor] >= end for tensor in own)
        return cls(None if escapes else key, np.array(numbers, dtype=np.int64))


def _key(value: Any, own: dict[int, int], numbers: list[int]) -> Any:
    """Return what must be equal, and append what may grow; `own` numbers the tensors that an iteration makes."""
    kind = type(value)
    if kind in MOVING:
        tensor = value.tensor if isinstance(value, _PLACED) else None
        place = ("own", own[tensor]) if tensor in own else ("tensor", tensor)
        fixed = [getattr(value, name) for name in FIXED[kind]]
        return kind, place, *fixed, *[_key(getattr(value, name), own, numbers) for name in MOVING[kind]]
    if kind is tuple:
        return tuple([item if type(item) is str else _key(item, own, numbers) for item in value])
    if isinstance(value, bool) or value is None or isinstance(value, float | str):
        return kind, repr(value)
    if isinstance(value, int):
        numbers.append(value)
        return int
    if isinstance(value, Affine):
        numbers.append(value.base)
        return value.steps
    if isinstance(value, Allocate):
        own[value.tensor] = len(own)
        return "allocate", len(own)
    if isinstance(value, Loop):
        return "loop", value.count, tuple(_key(node, own, numbers) for node in value.body)
    return value


def _alike(shapes: Sequence[_Shape], place: int) -> tuple[int, list[int]]:
    """Return how many iterations from a place on are alike, and by how much their numbers grow."""
    first = shapes[place]
    if first.key is None or place + 1 == len(shapes) or shapes[place + 1].key != first.key:
        return 1, []
    growth = shapes[place + 1].numbers - first.numbers
    count = 2
    while (
        place + count < len(shapes)
        and shapes[place + count].key == first.key
        and np.array_equal(shapes[place + count].numbers - shapes[place + count - 1].numbers, growth)
    ):
        count += 1
    return count, growth.tolist()


def _grown(nodes: Sequence[Node], growth: Iterator[int], depth: int = 0) -> Iterator[Node]:
    """Return the nodes of an iteration as the body of a loop; `depth` is the number of loops in between."""
    for node in nodes:
        yield _grow(node, growth, depth)


def _grow(value: object, growth: Iterator[int], depth: int) -> Any:
    """Return a value with the steps of the loop around it, in the order in which `_key` appends numbers."""
    grow: Callable[[Any], Any] = lambda item: _grow(item, growth, depth)  # noqa: E731 - a name for one use each
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        step = next(growth)
        return Affine(value, (step, *[0] * depth)) if step else value
    if isinstance(value, Affine):
        return Affine(value.base, (next(growth), *value.steps))
    if isinstance(value, Loop):
        return Loop(value.count, tuple(_grown(value.body, growth, depth + 1)))
    moving = MOVING.get(type(value))
    if moving is not None:
        moved: Any = value
        return dataclasses.replace(moved, **{name: grow(getattr(value, name)) for name in moving})
    if isinstance(value, tuple):
        return tuple([item if type(item) is str else grow(item) for item in value])
    return value
