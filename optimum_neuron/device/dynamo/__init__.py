"""`torch.compile(model, backend="neuron")`: graphs are checked for the chip, auto-cast, and run on the host.

torch finds the backend by its entry point; nothing has to be imported. Dynamo captures and AOTAutograd differentiates;
this package (`backend.py`) checks every graph against the compiler's rules, estimates it, and has Inductor make host
code.

    import torch
    step = torch.compile(train_step, backend="neuron", options={"auto_cast": "matmul"})
    print(torch.neuron.compile_report())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from torch import fx

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def neuron(graph_module: fx.GraphModule, example_inputs: list[Any], **keywords: object) -> Any:
    """The backend, under the names "neuron" and "neuronx"; see `backend.compile_graph`."""
    from .backend import compile_graph

    return compile_graph(graph_module, example_inputs, **keywords)


def _reset() -> None:
    from . import report, shapes

    report.reset()
    shapes.reset()


neuron.reset = _reset  # type: ignore[attr-defined]  # torch._dynamo.reset() looks for it
