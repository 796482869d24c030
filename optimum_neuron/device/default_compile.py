"""`torch.compile` without a backend: graphs of device tensors go to the backend "neuron".

Without a backend torch means Inductor, which generates code for its own devices only. A program that names no backend
did not ask for the chip's checks either, so unsupported operators run on the host there, and the compile report lists
them. Graphs without device tensors stay Inductor's.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..upstream.torch import DEFAULT_BACKEND_CALL, DEFAULT_BACKEND_RESET

if TYPE_CHECKING:
    from torch import fx

logger = logging.getLogger(__name__)


def install() -> None:
    """Wrap torch's default backend, now that the device is loaded."""
    DEFAULT_BACKEND_CALL.replace(_compiling_device_tensors)
    DEFAULT_BACKEND_RESET.replace(_resetting_both)


def _compiling_device_tensors(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile_graph(self: Any, graph_module: fx.GraphModule, example_inputs: list[Any], **keywords: Any) -> Any:
        if not _uses_device(graph_module):
            return original(self, graph_module, example_inputs, **keywords)
        from .dynamo import ALL, backend

        if self.config:
            names = ", ".join(sorted(self.config))
            logger.warning("backend='neuron' compiles device tensors without these options of Inductor: %s", names)
        return backend.compile_graph(graph_module, example_inputs, options={"allow_host_ops": (ALL,)})

    return compile_graph


def _resetting_both(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reset(self: object) -> None:
        from .dynamo import neuron

        original(self)
        neuron.reset()  # type: ignore[attr-defined]

    return reset


def _uses_device(graph_module: fx.GraphModule) -> bool:
    """Return whether a value in Dynamo's graph is a device tensor."""
    import torch

    from ..upstream.torch import tree_leaves

    values = (leaf for node in graph_module.graph.nodes for leaf in tree_leaves(node.meta.get("example_value")))
    return any(isinstance(value, torch.Tensor) and value.device.type == "neuron" for value in values)
