"""`compare(before, after)`: two versions of a kernel side by side, from their analyses.

Lines that both versions execute are matched by their text, in their order; what is left was changed, added, or removed.
Each line has the time of its instructions on each engine: which change moved what. The times of lines overlap, so they
do not add up to the time of the kernel.

It runs nothing: `analyze` has run both versions, with the same arguments.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..upstream.torch import tree_leaves
from .analysis import Analysis
from .core import PlainData, source_of
from .timeline import ENGINES, busy_us, hbm_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineCost(PlainData):
    """What the instructions of one line of a kernel take."""

    line: str
    source: str
    num_instructions: int
    busy_us: dict[str, float]
    """Time that each engine is busy with them."""
    hbm_bytes: int
    """Bytes that they read from and write to HBM."""

    @property
    def total_us(self) -> float:
        """Time of all engines."""
        return sum(self.busy_us.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class LineChange(PlainData):
    """One line in both versions, or in one of them."""

    COMPUTED = ("kind", "moved_us")

    before: LineCost | None
    """In the first version; None if the line was added."""
    after: LineCost | None
    """In the second version; None if the line was removed."""

    @property
    def kind(self) -> str:
        """Return "same", "changed", "added", or "removed", by the text."""
        if self.before is None or self.after is None:
            return "added" if self.before is None else "removed"
        return "same" if self.before.source == self.after.source else "changed"

    @property
    def moved_us(self) -> dict[str, float]:
        """Return how much longer each engine is busy with it in the second version; without engines that are not."""
        before, after = ({} if one is None else one.busy_us for one in (self.before, self.after))
        moved = {engine: round(after.get(engine, 0.0) - before.get(engine, 0.0), 6) for engine in ENGINES}
        return {engine: us for engine, us in moved.items() if us}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(PlainData):
    """Two versions of a kernel, and what each line costs in both; all times are simulated."""

    COMPUTED = ("speedup",)

    before: Analysis
    after: Analysis
    lines: tuple[LineChange, ...]
    """Lines that execute instructions, those that moved most time first."""
    difference: float | None
    """Largest difference of the results, as a share of the largest value; None where their shapes differ."""

    @property
    def speedup(self) -> float:
        """Return how many times as fast the second version is."""
        return self.before.total_us / self.after.total_us


def compare(before: Analysis, after: Analysis) -> Comparison:
    """Return what differs between two versions of a kernel that ran with the same arguments.

    Example:
        ```python
        import torch

        from optimum_neuron.nki import analyze, compare, jit, language as nl


        def double(x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.multiply(nl.load(x), 2))
            return out


        def twice(x):
            out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
            tile = nl.load(x)
            nl.store(out, nl.add(tile, tile))
            return out


        x = torch.ones(128, 512)
        comparison = compare(analyze(double, x), analyze(twice, x))
        assert comparison.difference == 0 and {line.kind for line in comparison.lines} <= {"same", "changed", "added"}
        ```
    """
    found = _matched(costs_of(before), costs_of(after))
    lines = sorted(found, key=lambda line: -sum(map(abs, line.moved_us.values())))
    return Comparison(
        before=before, after=after, lines=tuple(lines), difference=difference_of(before.result, after.result)
    )


def costs_of(analysis: Analysis) -> list[LineCost]:
    """Return what each line of a kernel takes, by file and line; files are in the order of their first instruction."""
    events: dict[str, list[Any]] = {}
    for event in analysis.events:
        events.setdefault(event.record.line, []).append(event)
    files = list(dict.fromkeys(line.rpartition(":")[0] for line in events))

    def place(line: str) -> tuple[int, int]:
        file, _, number = line.rpartition(":")
        return files.index(file), int(number or 0)

    return [
        LineCost(
            line=line,
            source=source_of(line),
            num_instructions=len(events[line]),
            busy_us=busy_us(events[line]),
            hbm_bytes=sum(hbm_bytes(one.record) for one in events[line]),
        )
        for line in sorted(events, key=place)
    ]


def difference_of(before: object, after: object) -> float | None:
    """Return the largest difference of two results as a share of the largest value; None where shapes differ.

    >>> difference_of(torch.tensor([1.0, -4.0]), torch.tensor([1.0, -3.0]))
    0.25
    """
    pairs = [[torch.as_tensor(leaf).double() for leaf in tree_leaves(result)] for result in (before, after)]
    if [one.shape for one in pairs[0]] != [one.shape for one in pairs[1]]:
        return None
    return max((_share(one, other) for one, other in zip(*pairs, strict=True)), default=0.0)


def _share(one: torch.Tensor, other: torch.Tensor) -> float:
    if torch.equal(one, other) or not one.numel():
        return 0.0
    differs = (one != other) & ~(one.isnan() & other.isnan())
    if not differs.any():
        return 0.0
    largest = float(one.abs().nan_to_num().max())
    return float((one - other)[differs].abs().nan_to_num(nan=torch.inf).max()) / (largest or 1.0)


def _matched(before: Sequence[LineCost], after: Sequence[LineCost]) -> Iterator[LineChange]:
    """Match lines of equal text; blocks between them of equal length are changed line by line."""
    texts = ([one.source for one in before], [one.source for one in after])
    for _, first, last, begin, end in difflib.SequenceMatcher(a=texts[0], b=texts[1], autojunk=False).get_opcodes():
        mine, others = before[first:last], after[begin:end]
        if len(mine) == len(others):
            yield from (LineChange(before=one, after=other) for one, other in zip(mine, others, strict=True))
        else:
            yield from (LineChange(before=one, after=None) for one in mine)
            yield from (LineChange(before=None, after=other) for other in others)
