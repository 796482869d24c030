"""Images that stay in channels-last order between bodies, because convolutions compute in it.

A body is compiled for one layout of each argument, the contiguous one unless it is listed here. Only values between
compiled bodies that have convolutions are; what enters or leaves a graph is contiguous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from ...core import TensorSpec
from ..ir import Program

Layouts = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Subprogram name to the positions of its arguments and of its results that are in channels-last order."""


def channels_last(program: Program, convolving: Collection[str]) -> Layouts:
    """Find them.

    Args:
        program: all graphs with their calls.
        convolving: compiled subprograms whose convolutions are called in channels-last order.
    """
    places: dict[tuple[str, str], set[tuple[str, str, int]]] = defaultdict(set)  # value to where bodies have it
    for graph in program.graphs.values():
        for call in graph.calls:
            for kind, values in (("in", call.inputs), ("out", call.outputs)):
                for index, value in enumerate(values):
                    places[graph.name, value].add((call.subprogram, kind, index))
    kept = {
        (graph.name, value)
        for graph in program.graphs.values()
        for call in graph.calls
        for value in call.outputs
        if value not in graph.outputs.values() and _is_image(program.value_spec(graph, value))
    }
    found: set[tuple[str, str, int]] = set()
    while kept:
        contiguous = {place for value, ones in places.items() if value not in kept for place in ones}
        wrong = {value for value in kept if any(p[0] not in convolving or p in contiguous for p in places[value])}
        if not wrong:
            found = {place for value in kept for place in places[value]}
            break
        kept -= wrong
    return {
        name: tuple(
            tuple(sorted(index for sub, kind, index in found if (sub, kind) == (name, wanted)))
            for wanted in ("in", "out")
        )  # type: ignore[misc]
        for name in {place[0] for place in found}
    }


def _is_image(spec: TensorSpec) -> bool:
    return len(spec.shape) == 4 and spec.dtype == "float32"
