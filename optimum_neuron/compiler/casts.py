"""Casts of `torch.autocast`, written into a captured graph.

Export records the calls of a model, and a region of autocast as a submodule with its settings. The casts are made
below, where torch calls kernels, and nothing records them. A program has no such settings, so its graphs need the casts
as calls. They are seen by running each operator on its fake tensors, with autocast and without.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg

from ..errors import CaptureError
from ..upstream.torch import OpOverload, TorchDispatchMode
from .rules import product_operands, region_of, source_line, values_of
from .serialize import writes

_ATEN = torch.ops.aten
_CAST = _ATEN._to_copy.default


def write_casts(module: fx.GraphModule) -> None:
    """Write the casts of the active autocast into a module, and those of its own regions of autocast."""
    for node in list(module.graph.nodes):
        if (region := region_of(node)) is not None:
            settings, inside, _ = region
            with _autocast(*settings) if str(node.target) == "wrap_with_autocast" else contextlib.nullcontext():
                write_casts(module.get_submodule(inside.target))
        elif torch.is_autocast_enabled("cpu") and isinstance(node.target, OpOverload) and not writes(node):
            _write(node)


def _autocast(device_type: str, dtype: torch.dtype, enabled: bool, cache_enabled: bool) -> torch.autocast:
    return torch.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _write(node: fx.Node) -> None:
    """Write the casts of one operator's arguments."""
    casts = _casts(node)
    with torch.autocast("cpu", enabled=False):
        num_own = len(_casts(node))
    if len(casts) == num_own:
        return
    sources = {id(source.meta["val"]): source for source in node.all_input_nodes}
    dtypes = {sources[key]: dtype for key, dtype in casts if key in sources}
    if len(dtypes) < len(casts) - num_own:  # an operator that torch makes of others, which get other tensors
        dtypes = dict.fromkeys(product_operands(node), torch.get_autocast_dtype("cpu"))
    if not dtypes:
        place = source_line(node) or node.name
        message = f"torch.autocast casts inside of {node.target}, which no graph can say: {place}."
        hint = "Leave the operator out of the region, or cast its inputs and weights with .to()."
        raise CaptureError(message, hint=hint, op=str(node.target), source_line=source_line(node))
    copies: dict[fx.Node, fx.Node] = {}
    with node.graph.inserting_before(node):
        for source, dtype in dtypes.items():
            copy = copies[source] = node.graph.call_function(_ATEN.to.dtype, (source, dtype))
            copy.meta = {**node.meta, "val": source.meta["val"].to(dtype)}
    node.args, node.kwargs = map_arg((node.args, node.kwargs), lambda source: copies.get(source, source))


class _Seen(TorchDispatchMode):
    """Notes which tensors are cast, by their ids, and to which dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.casts: list[tuple[int, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _CAST and "dtype" in kwargs:
            self.casts.append((id(args[0]), kwargs["dtype"]))
        return func(*args, **kwargs)  # torch passes both


def _casts(node: fx.Node) -> list[tuple[int, torch.dtype]]:
    """Return the casts that running an operator makes; none where torch refuses to run it."""
    args, kwargs = values_of(node)
    with _Seen() as seen, torch.no_grad(), contextlib.suppress(RuntimeError):
        node.target(*args, **kwargs)
    return seen.casts
