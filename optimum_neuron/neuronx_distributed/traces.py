"""Trace a model as one of its ranks: `trace`, and what it returns.

    with NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        traced = trace(model, args=x)

All ranks run one program, so code may not depend on the number of the rank; layers of this package ask the device for
it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .. import tracing
from ..compiler import fake_parameters, quiet
from ..errors import ConfigError, NotSupportedError, nearest
from . import graph_exchanges
from .attributes import is_divided

WORLD_SIZE = 1
"""Number of ranks where torch.distributed is not initialized."""


@dataclasses.dataclass(frozen=True)
class ModelParamInfo:
    """A parameter of the traced function."""

    param_name: str
    is_positional: bool
    """It has no default."""


@dataclasses.dataclass(frozen=True)
class ProvidedArgInfo:
    """An argument that the function was traced with."""

    param_name: str
    is_positional: bool
    tensor: torch.Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class TracedProgram:
    """The program of a rank, before it is compiled."""

    entry: tracing.Entry
    world_size: int
    divided: Collection[str]
    """Weights of which each rank has its own part."""

    def SerializeToString(self) -> bytes:  # noqa: N802  (the name of protobuf)
        """Return a text of the program, as bytes."""
        specs = {name: str(spec) for name, spec in self.entry.input_specs.items()}
        graph = self.entry.capture("graph", shorten=False).exported.graph
        return f"{self.world_size} ranks, {specs}\n{graph}".encode()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceArtifacts:
    """A traced model."""

    hlo: TracedProgram
    metaneff: tracing.MetaNeff
    """Its tensors."""
    flattener: Callable[[Any], list[torch.Tensor]]
    """Takes the arguments apart."""
    packer: Callable[[list[torch.Tensor]], Any]
    """Puts the results together."""
    weight_name_to_idx: dict[str, int]
    """Numbers of weights by their names, with "->" in place of dots."""
    weight_names_to_skip: set[str]
    """Weights whose layout shall stay."""
    provided_args: list[ProvidedArgInfo]
    model_params: list[ModelParamInfo]


def trace(
    model: Callable[..., Any],
    args: torch.Tensor | tuple[torch.Tensor, ...] | None = None,
    kwargs: Mapping[str, torch.Tensor] | None = None,
    spmd: bool = True,
    preserve_parameters: bool = True,
    weights_to_skip_layout_optimization: Collection[str] | None = None,
) -> TraceArtifacts:
    """Trace a model as one of its ranks.

    Parameters and buffers that the model replaces, or changes in place, are states: they stay on the device.

    Args:
        model: a module or a function.
        args: example inputs, by position.
        kwargs: example inputs, by name.
        spmd: one program for all ranks.
        preserve_parameters: keep the weights of the model; they are kept in either case.
        weights_to_skip_layout_optimization: names, with "->" in place of dots, of weights whose layout shall stay.

    Raises:
        ConfigError: an argument cannot be used.
        CaptureError: the code depends on values.
    """
    if not spmd:
        hint = "Pass spmd=True, or use parallel_model_trace."
        raise NotSupportedError("Ranks with programs of their own cannot be traced.", hint=hint, option="spmd")
    parameters = _parameters(model)
    inputs = _bound(model, parameters, args, kwargs)
    aliases = dict.fromkeys(_changed(model, inputs))
    return trace_entry(model, inputs, aliases, parameters, set(weights_to_skip_layout_optimization or ()))


def trace_entry(
    model: Callable[..., Any],
    inputs: Mapping[str, torch.Tensor],
    aliases: Mapping[torch.Tensor, int | None],
    parameters: list[ModelParamInfo],
    skipped: set[str],
    *,
    by_name: bool = True,
) -> TraceArtifacts:
    """Trace a model with its inputs; `aliases` are its states."""
    if isinstance(model, nn.Module) and model.training:
        model.eval()
    entry = (
        tracing.make_entry(model, None, aliases, keywords=inputs)
        if by_name
        else tracing.make_entry(model, tuple(inputs.values()), aliases)
    )
    entry.capture_now()
    graph_exchanges.use_exchanges(entry.capture("graph", shorten=False).exported.graph)
    world_size = dist.get_world_size() if dist.is_initialized() else WORLD_SIZE
    states = set(entry.state_values)
    weights = [name for name in entry.tensors() if name not in states]
    named = dict(model.named_parameters()) if isinstance(model, nn.Module) else {}
    divided = frozenset(name for name, one in named.items() if is_divided(one)) - states
    numbers = {name.replace(".", "->"): number for number, name in enumerate(weights)}
    if unknown := [name for name in skipped if name not in numbers]:
        text = ", ".join(f"{name!r}{nearest(name, numbers)}" for name in unknown)
        message = f"weights_to_skip_layout_optimization has names that are no weights: {text}."
        raise ConfigError(message, hint='Write "->" in place of dots.', unknown=unknown)
    needed = {one.param_name: one.is_positional for one in parameters}
    return TraceArtifacts(
        hlo=TracedProgram(entry=entry, world_size=world_size, divided=divided),
        metaneff=_meta(entry, weights),
        flattener=lambda arguments: tracing.pick(entry.inputs.skeleton, tuple(arguments)),
        packer=lambda flat: tracing.rebuild(entry.outputs.skeleton, flat),
        weight_name_to_idx=numbers,
        weight_names_to_skip=skipped,
        provided_args=[ProvidedArgInfo(name, needed.get(name, True), value) for name, value in inputs.items()],
        model_params=parameters,
    )


def trace_by_position(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], aliases: Mapping[torch.Tensor, int]
) -> TraceArtifacts:
    """Trace a module with inputs by position; `aliases` are its states."""
    found = inspect.signature(module.forward).parameters.values()
    names = [one.name for one in found if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    by_name = len(names) >= len(inputs) and all(one.kind is not one.POSITIONAL_ONLY for one in found)
    names += [f"input{number}" for number in range(len(names), len(inputs))]
    given = dict(zip(names, inputs, strict=False))
    parameters = [ModelParamInfo(name, True) for name in given]
    return trace_entry(module, given, aliases, parameters, set(), by_name=by_name)


def _meta(entry: tracing.Entry, weights: list[str]) -> tracing.MetaNeff:
    kinds, tensors = tracing.MetaTensor.Type, entry.tensors()
    rows = [
        tracing.MetaTensor(
            name=name.encode(),
            shape=list(spec.shape),
            data_type=spec.dtype,
            type=kinds.USER_INPUT,
            user_input_key=name.partition(".")[0].encode(),
        )
        for name, spec in entry.input_specs.items()
    ]
    for name in [*weights, *entry.state_values]:
        value = tensors[name]
        kind = kinds.INPUT_STATE if name in entry.state_values else kinds.INPUT_WEIGHT
        dtype = str(value.dtype).removeprefix("torch.")
        key = name.encode()
        rows.append(tracing.MetaTensor(key, list(value.shape), dtype, kind, checkpoint_key=key))
    results = [
        tracing.MetaTensor(name=f"output_{number}".encode(), shape=list(spec.shape), data_type=spec.dtype)
        for number, spec in enumerate(entry.outputs.specs)
    ]
    return tracing.MetaNeff(type(entry).__name__.encode(), rows, results)


def _parameters(model: Callable[..., Any]) -> list[ModelParamInfo]:
    if not callable(model):
        raise ConfigError(f"A {type(model).__name__} cannot be traced.", hint="Pass a module or a function.")
    found = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    variable = [str(one) for one in found if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    wrong = [one.name for one in found if one.default is not one.empty and one.default is not None]
    if not found or variable or wrong:
        problem = f"has {', '.join(variable)}" if variable else f"has defaults for {', '.join(wrong)}"
        message = f"The function {problem if found else 'has no parameters'}."
        hint = "Trace a function of tensors whose parameters have a name, and None as default if they have one."
        raise ConfigError(message, hint=hint, parameters=[str(one) for one in found])
    return [ModelParamInfo(one.name, one.default is one.empty) for one in found]


def _bound(model: Callable[..., Any], parameters: list[ModelParamInfo], args: Any, kwargs: Any) -> dict[str, Any]:
    """The inputs by name, in the order of the parameters."""
    values = (args,) if isinstance(args, torch.Tensor) else args or ()
    names = [one.param_name for one in parameters]
    if not isinstance(values, tuple) or not isinstance(kwargs or {}, Mapping):
        raise ConfigError("args is a tensor or a tuple of tensors, and kwargs a dictionary.", hint="Pass those.")
    given = dict(zip(names, values, strict=False)) | dict(kwargs or {})
    unknown = [name for name in kwargs or () if name not in names]
    missing = [one.param_name for one in parameters if one.is_positional and one.param_name not in given]
    twice = [name for name in kwargs or () if name in names[: len(values)]]
    others = [name for name, value in given.items() if not isinstance(value, torch.Tensor)]
    for problem, found in (
        ("are no parameters", unknown),
        ("are missing", missing),
        ("are given twice", twice),
        ("are no tensors", others),
        ("are more than the parameters", list(values[len(names) :])),
    ):
        if found:
            text = ", ".join(name if isinstance(name, str) else type(name).__name__ for name in found)
            message = f"Some of the inputs {problem}: {text}."
            raise ConfigError(message, hint=f"The parameters are {', '.join(names)}.", inputs=text, parameters=names)
    if not given:
        raise ConfigError("There are no example inputs.", hint="Pass args or kwargs.")
    return {name: given[name] for name in names if name in given}


def _changed(model: Callable[..., Any], inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Parameters and buffers that a call replaces or writes, found on tensors without data."""
    if not isinstance(model, nn.Module):
        return []
    from ..upstream.torch import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    places = [
        (store, name, store[name])
        for module in model.modules()
        for store in (module._parameters, module._buffers)
        for name in store
        if store[name] is not None
    ]
    changed: dict[int, torch.Tensor] = {}
    with fake_parameters(model, mode), torch.no_grad(), quiet(), mode:
        for store, name, own in places:
            store[name] = torch.empty(own.shape, dtype=own.dtype) if store[name] is own else store[name]
        before = [(store[name], store[name]._version) for store, name, _ in places]
        try:
            model(**{name: torch.empty(value.shape, dtype=value.dtype) for name, value in inputs.items()})
            for (store, name, own), (value, version) in zip(places, before, strict=True):
                if store[name] is not value or value._version != version:
                    changed[id(own)] = own
        finally:
            for store, name, own in places:
                store[name] = own
    return list(changed.values())
