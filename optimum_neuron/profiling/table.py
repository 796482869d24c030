"""The bottleneck table: operators of all calls, equal ones of equal layers in one row.

>>> in_every_layer("model.layers.12.mlp.down")
'model.layers.*.mlp.down'
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .operators import Bound

if TYPE_CHECKING:
    from .graph import GraphProfile

LAUNCH = "launch"
"""Launch of a graph's call, in the place of an operator."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the bottleneck table: an operator in equal layers, over all calls of its graph."""

    operator: str
    """For example "aten.linear", or "launch"."""
    module_path: str = ""
    """Path in the model; `*` stands for numbers of layers."""
    source_line: str = ""
    """file:line of the code that calls it, where known."""
    engine: str = ""
    graph: str
    num_calls: int
    time_us: float
    alone_us: float
    """Time of all calls if nothing overlapped with other operators."""
    share: float
    """Share of the profile's device time, 0 to 1."""
    bound: Bound | str
    """Resource that limits it: compute, DMA, vector, or link."""
    flops: int = 0
    hbm_bytes: int = 0
    """Lower bound of the bytes that all calls read from HBM."""


_SUMS = ("num_calls", "time_us", "alone_us", "share", "flops", "hbm_bytes")


def rows_of(graphs: Sequence[GraphProfile]) -> list[Row]:
    """The rows of all calls of these graphs, longest first."""
    device_us = sum(graph.num_calls * graph.device_us for graph in graphs)
    rows: dict[tuple[str, ...], Row] = {}
    for graph in graphs:
        for row in _rows(graph, device_us):
            key = (graph.model, graph.graph, row.operator, row.module_path, row.source_line, row.engine)
            rows[key] = _joined(rows[key], row) if key in rows else row
    return sorted(rows.values(), key=lambda row: -row.time_us)


def in_every_layer(module_path: str) -> str:
    """A path with `*` for the numbers of layers."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module_path)


def _rows(graph: GraphProfile, device_us: float) -> Iterator[Row]:
    """Operators and launch of a graph, with the amounts of all its calls."""
    calls, launches_us = graph.num_calls, graph.num_calls * graph.launch_us
    for one in graph.operators:
        yield Row(
            operator=one.operator,
            module_path=in_every_layer(one.module_path),
            source_line=one.source_line,
            engine=one.engine,
            graph=graph.graph,
            num_calls=calls,
            time_us=calls * one.time_us,
            alone_us=calls * one.alone_us,
            share=calls * one.time_us / device_us,
            bound=one.bound,
            flops=calls * one.flops,
            hbm_bytes=calls * one.hbm_bytes,
        )
    yield Row(
        operator=LAUNCH,
        graph=graph.graph,
        num_calls=calls,
        time_us=launches_us,
        alone_us=launches_us,
        share=launches_us / device_us,
        bound=LAUNCH,
    )


def _joined(one: Row, other: Row) -> Row:
    """Two rows of one line; the bound of the slower one counts."""
    longer = max(one, other, key=lambda row: row.time_us)
    return dataclasses.replace(longer, **{name: getattr(one, name) + getattr(other, name) for name in _SUMS})
