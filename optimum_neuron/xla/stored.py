"""A compiled graph in a NEFF of the compile cache: its operators as text, and its work for simulated times.

write(path, module, work, name="graph 1", target=target)
work = read_work(path)
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler import COMPILER_VERSION
from ..compiler.neff import open_neff, write_neff
from ..errors import ArtifactError
from ..simulator.work import GraphWork

if TYPE_CHECKING:
    from torch import fx

    from ..hardware import Target

GRAPH_MEMBER, WORK_MEMBER = "graph.txt", "work.json"


def write(path: Path, module: fx.GraphModule, work: GraphWork, *, name: str, target: Target) -> None:
    """Write a graph as a NEFF."""
    members = {
        GRAPH_MEMBER: graph_text(module).encode(),
        WORK_MEMBER: json.dumps(_without_defaults(work)).encode(),
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
            return _made(GraphWork, json.loads(bytes(neff.read(WORK_MEMBER))))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"The work in {path} is broken ({type(error).__name__}: {error})."
            raise ArtifactError(message, hint="Remove the entry from the cache.", path=str(path)) from error


def _without_defaults(value: Any) -> Any:
    """A dataclass as plain data, without the fields that have their defaults."""
    if dataclasses.is_dataclass(value):
        fields = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {field.name: _without_defaults(one) for field, one in fields if one != field.default}
    return [_without_defaults(one) for one in value] if isinstance(value, tuple | list) else value


def _made(kind: Any, value: Any) -> Any:
    """A value of a type, from plain data."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _made(next(one for one in parts if one is not type(None)), value)
    if origin is tuple:
        kinds = [parts[0]] * len(value) if parts[-1] is Ellipsis else parts
        return tuple(_made(one, item) for one, item in zip(kinds, value, strict=True))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _made(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
