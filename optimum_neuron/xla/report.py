"""What was compiled, run and read on the host: reports and warnings of the graphs of the device "xla".

`print(torch.neuron.compile_report())` contains it. Warnings come where a script would wait for compiles again and
again, and where a graph never ends.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from ..base import env
from ..base.wording import counted, listed
from ..device.dynamo import report as compile_reports
from .compiled import CompiledGraph
from .places import PLACES, current
from .tape import Closed

STORM = 4
"""Graphs of the same operators and other shapes from which on a warning says which input changes."""
HELD_STEPS = 8
"""Steps in a row that each leave more tensors than the one before, from which on a warning says so."""
_MOST_SHAPES = 8
_CAPTION = "graphs between two syncs of the device xla"


class RecompileWarning(UserWarning):
    """A graph is compiled again and again for other shapes."""


class LongGraphWarning(UserWarning):
    """A graph grows without an end: `mark_step` or `sync` is missing."""


class HeldTensorsWarning(UserWarning):
    """Tensors of many steps are held, so that memory of the device fills."""


@dataclasses.dataclass(kw_only=True)
class Row:
    """One compiled graph in the report."""

    name: str
    module: str
    cause: str
    place: str
    step: int
    """Number of syncs before it."""
    num_operators: int
    num_inputs: int
    num_outputs: int
    compile_s: float
    was_cached: bool
    num_runs: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        sizes = f"{self.num_operators:>9} {self.num_inputs:>6} {self.num_outputs:>7}"
        found = "; from the compile cache" if self.was_cached else ""
        why = f"step {self.step}, {self.cause} at {self.place}{found}"
        return f"{self.name:<15} {sizes} {self.compile_s:>9.2f} {self.num_runs:>5}  {why}"


class XlaReport:
    """The graphs of this process."""

    def __init__(self) -> None:
        self.num_steps = 0
        """Calls of sync."""
        self.rows: dict[str, Row] = {}
        """Compiled graphs by hash."""
        self.reads: collections.Counter[tuple[str, str]] = collections.Counter()
        """How often each operator at each place read a value and so ended a graph."""
        self._alike: dict[int, list[CompiledGraph]] = {}
        self._num_live: list[int] = []
        """Tensors at the ends of the last steps, each of which has more than the one before."""
        self._lock = threading.Lock()

    def add_step(self, num_live: int) -> None:
        """Count a sync, and warn where each one has more tensors than the one before."""
        self.num_steps += 1
        if self._num_live and num_live <= self._num_live[-1]:
            self._num_live.clear()
        self._num_live.append(num_live)
        if len(self._num_live) == HELD_STEPS + 1:  # no more afterwards: a loop is told once
            message = (
                f"Each of the last {HELD_STEPS} steps left more tensors on the device xla, "
                f"{num_live - self._num_live[0]} in all: results of earlier steps are still held, and fill its memory. "
                "Keep `tensor.detach().cpu()` or a number instead, after the sync."
            )
            warnings.warn(message, HeldTensorsWarning, stacklevel=2)

    def add_compile(self, closed: Closed, compiled: CompiledGraph, cause: str, place: str, seconds: float) -> None:
        """Remember a compiled graph, and warn if it is one of many that differ in shapes."""
        with self._lock:
            is_new = compiled.hash not in self.rows
            if is_new:
                self.rows[compiled.hash] = Row(
                    name=compiled.work.name,
                    module=compiled.module,
                    cause=cause,
                    place=place,
                    step=self.num_steps - (cause.startswith("sync")),
                    num_operators=closed.num_operators,
                    num_inputs=closed.num_inputs,
                    num_outputs=closed.num_outputs,
                    compile_s=seconds,
                    was_cached=compiled.was_cached,
                )
            alike = self._alike.setdefault(compiled.operators, [])
            if is_new:
                alike.append(compiled)
        if is_new and len(alike) >= STORM and len(alike) & (len(alike) - 1) == 0:
            self._warn_of_storm(alike)
        _debug("Compilation", compiled, cause, place)

    def add_run(self, closed: Closed, compiled: CompiledGraph, cause: str, place: str) -> None:
        """Count a run of a graph."""
        self.rows[compiled.hash].num_runs += 1
        _debug("Execution", compiled, cause, place)

    def add_read(self, operator: str, place: str) -> None:
        """Count a value that was read on the host while its graph was recorded."""
        self.reads[operator, place] += 1

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self.num_steps = 0
            self.rows.clear()
            self.reads.clear()
            self._num_live.clear()
            self._alike.clear()

    def warn_of_growth(self, num_operators: int) -> None:
        """Warn that a graph never ends."""
        message = (
            f"The graph of the device xla has {num_operators:,} operators and has not ended since step "
            f"{self.num_steps}. Call torch_xla.sync() (xm.mark_step()) after each step."
        )
        warnings.warn(message, LongGraphWarning, stacklevel=2)

    def _warn_of_storm(self, alike: list[CompiledGraph]) -> None:
        inputs = [
            (number, read, list(dict.fromkeys(one.shape for one in read)))
            for number, read in enumerate(zip(*(graph.inputs for graph in alike), strict=False))
        ]
        changing = [one for one in inputs if len(one[2]) > 1]
        if not changing:
            return
        number, read, shapes = changing[0]
        first, place = read[0], PLACES.at(read[0].place)
        largest = tuple(max(sizes) for sizes in zip(*shapes, strict=True)) if len(set(map(len, shapes))) == 1 else None
        shown = listed([f"{list(shape)}" for shape in shapes], _MOST_SHAPES)
        remedy = f"Pad it to {list(largest)}, or to a few lengths ({_buckets(shapes)})." if largest else "Pad it."
        message = (
            f"The same {first_words(alike[0])} was compiled for {counted(len(alike), 'set', 'sets')} of shapes: input "
            f"{number}, which {first.operator} reads first at {place}, was {shown}. {remedy}"
        )
        warnings.warn(message, RecompileWarning, stacklevel=2)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        reads = [{"operator": name, "place": place, "count": count} for (name, place), count in self.reads.items()]
        return {
            "num_steps": self.num_steps,
            "graphs": [row.to_dict() for row in self.rows.values()],
            "num_recompiles": sum(len(alike) - 1 for alike in self._alike.values()),
            "reads": reads,
        }

    def lines(self) -> Iterator[str]:
        """Text for people."""
        if not self.rows:
            return
        compiles = counted(len(self.rows), "graph")
        yield f"{_CAPTION}: {counted(self.num_steps, 'sync')}, {compiles} compiled"
        yield f"{'graph':<15} {'operators':>9} {'inputs':>6} {'outputs':>7} {'compile s':>9} {'runs':>5}  why"
        yield from map(str, self.rows.values())
        for (name, place), count in self.reads.most_common():
            yield f"{name} at {place} read a value and ended a graph, {counted(count, 'time')}"


REPORT = XlaReport()
"""The one of this process."""


def first_words(graph: CompiledGraph) -> str:
    """A graph in a sentence."""
    return f"graph of {graph.num_operators:,} operators"


def here() -> str:
    """The user's line that this thread is at."""
    return current().source or "an unknown line"


def install() -> None:
    """Put the report into `torch.neuron.compile_report()`."""
    compile_reports.add_section("xla", REPORT.to_dict, lambda: list(REPORT.lines()), REPORT.clear)


def _buckets(shapes: list[tuple[int, ...]]) -> str:
    """Sizes for the dimension that changes: powers of two up to the largest."""
    changing = next(index for index, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1)
    powers = sorted({1 << max(shape[changing] - 1, 0).bit_length() for shape in shapes})
    return f"{', '.join(map(str, powers))} in dimension {changing}"


def _debug(kind: str, compiled: CompiledGraph, cause: str, place: str) -> None:
    """torch_xla's blocks of PT_XLA_DEBUG."""
    level = env.xla_debug_level()
    if level < (1 if kind == "Compilation" else 2):
        return
    prefix = f"{kind} Analysis: "
    lines = [
        "=" * 80,
        f"{kind} Cause",
        f"  {cause}",
        "Graph Info:",
        f"  Graph Hash: {compiled.hash}",
        f"  Number of Graph Inputs: {compiled.num_inputs}",
        f"  Number of Graph Outputs: {compiled.num_outputs}",
        "Python Frame Triggered Execution:",
        f"  {place}",
        "=" * 80,
    ]
    text, file = "".join(f"{prefix}{line}\n" for line in lines), env.xla_debug_file()
    if file is None:
        print(text, end="", file=sys.stderr, flush=True)
        return
    with open(file, "a", encoding="utf-8") as opened:
        opened.write(text)
