"""Graph modules whose Python is written when they are first run, if ever, and freed with them.

torch writes the source of a `GraphModule` when it is made. Compiled bodies are read, not run, so that would be a tenth
of the time of a load. torch keeps each source in two caches for tracebacks, too, and never removes it (torch 2.13,
`torch/fx/graph_module.py: _EvalCacheLoader`). A process that loads and unloads models would grow with every load.

    module = lazy_module(graph)
"""

from __future__ import annotations

import linecache
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, GraphModule


def lazy_module(graph: Graph) -> GraphModule:
    """Return a module of a graph without parameters and submodules."""
    from ..upstream.torch import LazyGraphModule

    module = LazyGraphModule({}, graph)
    forget_source_at_end(module)
    return module


def forget_source_at_end(module: GraphModule) -> None:
    """Remove the source of a module when the module is freed. Until then, tracebacks show it."""
    # Every graph module has its own class, with its own function.
    weakref.finalize(module, _forget, type(module)).atexit = False


def _forget(kind: Any) -> None:
    from ..upstream.torch import loader

    key = kind.forward.__code__.co_filename
    loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)
