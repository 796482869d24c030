"""Choose images that stay in channels-last order between compiled subgraphs, because convolutions compute in it.

A subgraph is compiled for one layout of each argument: contiguous, unless it is listed here. Only values between
compiled subgraphs with convolutions are listed; inputs and outputs of a graph are contiguous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ...base.core import TensorSpec
from ..ir import Program

Layouts = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Subprogram name to the positions of its arguments and of its results that are in channels-last order."""


def channels_last(program: Program, convolving: Collection[str]) -> Layouts:
    """Find images that can stay in channels-last order between the compiled subprograms with convolutions."""
    places: dict[tuple[str, str], set[tuple[str, str, int]]] = defaultdict(set)  # value to where bodies have it
    for graph in program.graphs.values():
        for call in graph.calls:
            for kind, values in (("in", call.inputs), ("out", call.outputs)):
                for index, value in enumerate(values):
                    places[graph.name, value].add((call.subprogram, kind, index))
    images = {
        (graph.name, value)
        for graph in program.graphs.values()
        for call in graph.calls
        for value in call.outputs
        if value not in graph.outputs.values() and _is_image(program.value_spec(graph, value))
    }
    positions: set[tuple[str, str, int]] = set()
    while images:
        contiguous = {place for value, ones in places.items() if value not in images for place in ones}
        wrong = {value for value in images if any(p[0] not in convolving or p in contiguous for p in places[value])}
        if not wrong:
            positions = {place for value in images for place in places[value]}
            break
        images -= wrong
    return {
        name: tuple(
            tuple(sorted(index for sub, kind, index in positions if (sub, kind) == (name, direction)))
            for direction in ("in", "out")
        )  # type: ignore[misc]
        for name in {place[0] for place in positions}
    }


def _is_image(spec: TensorSpec) -> bool:
    return len(spec.shape) == 4 and spec.dtype in ("float32", "bfloat16")
