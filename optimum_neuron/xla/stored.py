"""A compiled graph in a NEFF of the compile cache: its operators as text, and its work for simulated times.

write(path, module, work, name="graph 1", target=target)
work = read_work(path)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler import COMPILER_VERSION
from ..compiler.neff import open_neff, write_neff
from ..errors import ArtifactError
from ..files.plain_json import from_plain, parse_json, to_plain
from ..simulator.work import GraphWork

if TYPE_CHECKING:
    from torch import fx

    from ..hardware import Target

GRAPH_MEMBER, WORK_MEMBER = "graph.txt", "work.json"


def write(path: Path, module: fx.GraphModule, work: GraphWork, *, name: str, target: Target) -> None:
    """Write a graph as a NEFF."""
    members = {
        GRAPH_MEMBER: graph_text(module).encode(),
        WORK_MEMBER: json.dumps(to_plain(work)).encode(),
    }
    write_neff(
        path,
        members,
        name=name,
        target=target.name,
        core_version=target.core.generation,
        compiler_version=COMPILER_VERSION,
        metadata={"front_end": "xla"},
    )


def graph_text(module: fx.GraphModule) -> str:
    """The operators of a graph with the dtypes and sizes of their results, one a line."""
    lines = []
    for node in module.graph.nodes:
        value = node.meta.get("val")
        shape = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}" if hasattr(value, "shape") else ""
        lines.append(f"{node.format_node()} {shape}".rstrip())
    return "\n".join(lines) + "\n"


def read_work(path: Path) -> GraphWork:
    """The work of a graph, from its NEFF."""
    with open_neff(path) as neff:
        try:
            return from_plain(GraphWork, parse_json(bytes(neff.read(WORK_MEMBER))))
        except ValueError as error:
            message = f"The work in {path} is broken ({type(error).__name__}: {error})."
            raise ArtifactError(message, hint="Remove the entry from the cache.", path=str(path)) from error
