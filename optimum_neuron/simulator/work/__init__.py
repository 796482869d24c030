"""Graph to work: what a run asks of a core, counted from shapes alone.

    record.py      Work, Step, GraphWork: the result, whatever it was counted from
    graph.py       compiled programs, torch.fx modules
    sizes.py layer_sizes.py  sizes of a decoder, from its configuration
    decoder.py     prefill and decode of a decoder under tensor parallelism, from its sizes
    layers.py      layers of models that are walked through by their sizes
    diffusion/     components of diffusion pipelines
    trained.py     what a configuration says of a model's training; operations and activations of a step

One call of an operator is counted by `compiler/work.py`, in the tiles of `compiler/tiles.py`, and nowhere else. Nothing
here knows a measured constant. A test compares what is counted from compiled graphs and from configurations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .graph import work_of_graph, work_of_program
    from .record import GraphWork, Step, Work

__all__ = [
    "GraphWork",
    "Step",
    "Work",
    "work_of_graph",
    "work_of_program",
]

_MODULES = {
    "GraphWork": "record",
    "Step": "record",
    "Work": "record",
    "work_of_graph": "graph",
    "work_of_program": "graph",
}

__getattr__ = lazy_names(__name__, _MODULES)
