"""The graph of a model by names that scripts import from `neuronx_distributed.pipeline.trace`.

traced = trace_model(model, input_names=["input_ids"], leaf_modules=["LlamaDecoderLayer"])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, NotSupportedError, invalid_choice, nearest
from .pipeline_graph import Leaf, Tracer


def get_concrete_args(
    model: nn.Module,
    input_names: Sequence[str] | None = None,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the arguments of a model that are not its inputs, with their defaults.

    Args:
        model: the model.
        input_names: names of the inputs; None: those of `args` and `kwargs`.
        args: inputs by position.
        kwargs: inputs by name.

    Raises:
        ConfigError: the model has no such inputs.
    """
    known = inspect.signature(model.forward).parameters
    names = [*list(known)[: len(args or ())], *(kwargs or ())] if input_names is None else list(input_names)
    if unknown := [name for name in names if name not in known]:
        text = ", ".join(f"{name}{nearest(name, known)}" for name in unknown)
        raise ConfigError(f"The model has no inputs {text}.", hint="Name arguments of its forward.", names=unknown)
    return {name: one.default for name, one in known.items() if name not in names}


def get_tracer_class(model: nn.Module, tracer_cls: str | type[Tracer] | None = None) -> type[Tracer]:
    """Return the tracer of a model: one traces models of torch and of transformers.

    Args:
        model: the model.
        tracer_cls: "torch", "hf", a class, or None.
    """
    if isinstance(tracer_cls, type):
        return tracer_cls
    if tracer_cls not in (None, "torch", "hf"):
        raise invalid_choice("tracer_cls", str(tracer_cls), ["hf", "torch"])
    return Tracer


def trace_model(
    model: nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    tracer_cls: str | type[Tracer] | None = None,
    leaf_modules: Sequence[Leaf] | None = None,
    autowrap_functions: Sequence[Callable[..., Any]] | None = None,
    autowrap_modules: Sequence[ModuleType] | None = None,
    autowrap_obj_methods: Mapping[Any, Sequence[Callable[..., Any]]] | None = None,
) -> torch.fx.GraphModule:
    """Return the graph of a model; parallel layers and their functions are nodes.

    Args:
        model: the model.
        args: inputs by position, if `input_names` does not say which there are.
        kwargs: inputs by name, likewise.
        input_names: names of the inputs.
        tracer_cls: as of `get_tracer_class`.
        leaf_modules: classes, or their names, whose modules are nodes.
        autowrap_functions: functions that are nodes.
        autowrap_modules: Python modules whose functions are nodes.
        autowrap_obj_methods: not supported.
    """
    if autowrap_obj_methods:
        hint = "Name the classes of these methods as leaf_modules."
        raise NotSupportedError("Methods of objects cannot be nodes.", hint=hint, option="autowrap_obj_methods")
    fixed = get_concrete_args(model, input_names, args, kwargs)
    names = [name for name in inspect.signature(model.forward).parameters if name not in fixed]
    kind = get_tracer_class(model, tracer_cls)
    tracer = kind(names, leaf_modules or (), autowrap_functions or (), autowrap_modules or ())
    return torch.fx.GraphModule(model, tracer.trace(model))
