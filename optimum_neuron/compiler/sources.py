"""Free the Python source that torch.fx generates for a graph module, once the module is gone.

torch keeps the source of every `GraphModule` in two caches for tracebacks, and never removes it (torch 2.13,
`torch/fx/graph_module.py: _EvalCacheLoader`). A process that loads and unloads models would grow with every load.

    forget_source_at_end(module)
"""

from __future__ import annotations

import linecache
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import GraphModule


def forget_source(module: GraphModule) -> None:
    """Remove the source of a module now. Call it before `recompile`, which generates another one."""
    _remove(_key(module))


def forget_source_at_end(module: GraphModule) -> None:
    """Remove the source of a module when the module is freed. Until then, tracebacks show it."""
    weakref.finalize(module, _remove, _key(module)).atexit = False


def _key(module: GraphModule) -> str:
    # Every graph module has its own class, with its own function.
    return type(module).forward.__code__.co_filename


def _remove(key: str) -> None:
    from torch.fx import graph_module

    graph_module._loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)
