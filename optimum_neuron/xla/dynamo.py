"""`torch.compile(backend="openxla")`: torch's own backend asks `torch_xla.core.dynamo_bridge` for a graph that runs.

compiled = torch.compile(model, backend="openxla")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from . import graphs


def extract_compiled_graph(model: fx.GraphModule, args: Sequence[Any]) -> Callable[..., Any]:
    """Return a function whose work is a graph of its own.

    Args:
        model: what Dynamo captured.
        args: its first arguments; the graph is compiled at the first call.
    """
    region = graphs.Region("dynamo")

    def run(*args: object) -> Any:
        with region:
            return model(*args)

    return run
