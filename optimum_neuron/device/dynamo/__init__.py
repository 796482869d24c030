"""`torch.compile(model, backend="neuron")`: graphs are checked for the chip, auto-cast, and run on the host.

torch finds the backend by its entry point; nothing has to be imported. Dynamo captures and AOTAutograd differentiates;
this package checks every graph against the compiler's rules, estimates it, and has Inductor make host code.

    options.py      what `torch.compile(options=...)` takes
    backend.py      the backend: static sizes, one record for each graph
    flex.py         FlexAttention written out
    plan.py         all decisions for one captured frame
    cache.py        keys and entries of torch's compile caches
    hosted.py       operators of other packages, which run on the host
    host_graph.py   a device graph as a host graph
    border.py       host code as a function of device tensors
    estimate.py     work of a graph and the least time it can take on the target
    calls.py        calls of graphs, counted for profiles and tools
    report.py       what was compiled, why again, and where graphs broke

    import torch
    step = torch.compile(train_step, backend="neuron", options={"auto_cast": "matmul"})
    print(torch.neuron.compile_report())
"""

from __future__ import annotations

from typing import Any


def neuron(graph_module: Any, example_inputs: list[Any], **keywords: Any) -> Any:
    """The backend, under the names "neuron" and "neuronx"; see `backend.compile_graph`."""
    from .backend import compile_graph

    return compile_graph(graph_module, example_inputs, **keywords)


def _reset() -> None:
    from . import report, shapes

    report.reset()
    shapes.reset()


neuron.reset = _reset  # type: ignore[attr-defined]  # torch._dynamo.reset() looks for it
