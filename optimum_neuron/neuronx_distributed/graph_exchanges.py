"""Collectives of torch.distributed and of `xm` that a traced model calls, as exchanges of the compiled program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import fx

from ..errors import NotSupportedError

_PREFIXES = ("_c10d_functional.", "c10d.", "xla.")


def use_exchanges(graph: fx.Graph) -> None:
    """Replace the collectives of a graph, in place.

    Raises:
        NotSupportedError: a collective is not of all ranks, is no sum, or has no counterpart.
    """
    for node in list(graph.nodes):
        name = str(node.target).removesuffix(".default")
        if node.op != "call_function" or not name.startswith(_PREFIXES):
            continue
        if name == "_c10d_functional.wait_tensor":
            node.replace_all_uses_with(node.args[0])
        else:
            with graph.inserting_before(node):
                new = graph.call_function(*_exchange(name, node))
            new.meta = dict(node.meta)
            node.replace_all_uses_with(new)
        graph.erase_node(node)


def _exchange(name: str, node: fx.Node) -> tuple[Any, tuple[Any, ...]]:
    """The operator in place of a collective, and its arguments."""
    world, args = dist.get_world_size(), node.args
    value, ops = args[0], torch.ops.neuron
    whole: Any = args[-1] in ([], [list(range(world))])
    if name.startswith("_c10d_functional.") and isinstance(args[-1], str):
        whole = _size_of(args[-1]) == world
    sums: dict[str, Callable[[], Any]] = {
        "_c10d_functional.all_reduce": lambda: args[1] == "sum" and (ops.all_reduce.default, (value, world)),
        "_c10d_functional.all_gather_into_tensor": lambda: (ops.all_gather.default, (value, 0, world)),
        "_c10d_functional.reduce_scatter_tensor": lambda: (
            args[1] == "sum" and (ops.reduce_scatter.default, (value, 0, world))
        ),
        "xla.all_reduce": lambda: args[1:3] == ("sum", 1.0) and (ops.all_reduce.default, (value, world)),
        "xla.all_gather": lambda: (ops.all_gather.default, (value, _dim(args[1], node), world)),
        "xla.reduce_scatter": lambda: (
            args[1:3] == ("sum", 1.0) and (ops.reduce_scatter.default, (value, _dim(args[3], node), world))
        ),
    }
    found: Any = sums[name]() if whole and name in sums else False
    if not found:
        message = (
            f"A traced model calls {name}{tuple(map(str, args[1:]))}, which programs of several ranks do not have."
        )
        hint = f"Sum, gather, or scatter sums over all {world} ranks."
        raise NotSupportedError(message, hint=hint, operator=name)
    target, arguments = found
    return target, arguments


def _dim(dim: int, node: fx.Node) -> int:
    return dim % node.meta["val"].ndim


def _size_of(name: str) -> int:
    from ..upstream.torch import resolve_process_group

    return dist.get_world_size(resolve_process_group(name))
