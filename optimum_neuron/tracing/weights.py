"""Other weights for a traced model, and the core that it is on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..weights import StateDict
from . import contexts
from .script import neuron_models, session_of

if TYPE_CHECKING:
    import torch


def replace_weights(
    neuron_model: torch.jit.ScriptModule, weights: torch.nn.Module | Mapping[str, torch.Tensor]
) -> None:
    """Replace the weights of a model that was traced with `inline_weights_to_neff=False`; nothing is compiled.

    Device-resident state is reset. Without separate weights nothing changes, and a warning says so.

    Args:
        neuron_model: Result of `trace`, or of `torch.jit.load`; changed in place.
        weights: a module of the same architecture, or its state dict.

    Raises:
        WeightsError: tensors are missing or have another shape; all of them are named.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import replace_weights, trace

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), inline_weights_to_neff=False, compiler_args="-O1")
        other = torch.nn.Linear(4, 2)
        replace_weights(model, other)
        x = torch.rand(3, 4)
        torch.testing.assert_close(model(x), other(x))
        ```
    """
    import torch

    tensors = weights.state_dict() if isinstance(weights, torch.nn.Module) else weights
    source = StateDict(tensors=tensors, origin="the new weights")
    for model in neuron_models(neuron_model):
        session = session_of(model)
        if not session.separate_weights:
            warnings.warn(
                f"the weights of {session.name} are inside its NEFF and stay as they are; to replace them, trace it "
                "with inline_weights_to_neff=False",
                stacklevel=2,
            )
            continue
        sources, bound = session.artifact.weight_sources, session.artifact.bind(source).tensors
        by_name = {sources[name][0]: tensor.detach().clone() for name, tensor in bound.items()}
        names = session.metadata["weights"]
        model.weights = [by_name.get(name, old) for name, old in zip(names, model.weights, strict=True)]
        session.replace_weights(model.weights)


def move_trace_to_device(trace: torch.jit.ScriptModule, device_id: int) -> None:
    """Load a traced model on a core, with the weights that are outside its NEFF.

    Args:
        trace: Result of `trace`; moved in place.
        device_id: the core, counted from 0 among those of the process.

    Raises:
        ConfigError: the process has no such core.
        CoreBusyError, DeviceMemoryError: the model cannot be loaded there.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import move_trace_to_device, trace

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), inline_weights_to_neff=False, compiler_args="-O1")
        move_trace_to_device(model, 1)
        ```
    """
    if device_id < 0:
        raise contexts.no_such_cores(f"device_id={device_id}")
    placement = contexts.make_placement(device_id, 1)
    for model in neuron_models(trace):
        session = session_of(model)
        session.place(placement)
        session.load()
