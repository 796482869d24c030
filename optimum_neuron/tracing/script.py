"""Converts a compiled NEFF to the ScriptModule of the user, and that module back to its contents.

The outer module is recorded by `torch.jit.trace`: it takes nested inputs apart, calls the `NeuronModel`, and puts the
outputs together. Recording runs nothing on a core.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..compiler.neff import Neff
from ..errors import ConfigError
from . import ops
from .contexts import IS_DRY, setting
from .entry import Entry
from .neuron_model import NeuronModel
from .packing import is_traceable, packed
from .session import Session
from .structure import Skeleton, pick, rebuild

_DEPRECATED = r".torch\.jit\.\w+. is deprecated"


class Traced(nn.Module):
    """The nested call around a flat one, with the parameter names of the traced function."""

    def __init__(
        self, model: torch.jit.ScriptModule, names: Sequence[str], inputs: Skeleton, outputs: Skeleton
    ) -> None:
        super().__init__()
        self.model = model

        def forward(*arguments: object) -> Any:
            return rebuild(outputs, model(pick(inputs, arguments)))

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, kind) for name in names]
        )
        self.forward = forward


def script_neff(neff: Neff, weights: Sequence[torch.Tensor], *, lazy: bool = False) -> torch.jit.ScriptModule:
    """A `NeuronModel` around an open NEFF, loaded unless it shall wait for its first call."""
    tensor = ops.open_session(neff, weights)
    ops.start(ops.session_of_bytes(tensor), lazy=lazy, background=False)
    return scripted(NeuronModel(tensor, list(weights), lazy=False))


def scripted(module: nn.Module) -> torch.jit.ScriptModule:
    """`torch.jit.script`, without the warning that TorchScript is deprecated: callers asked for it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATED, DeprecationWarning)
        return torch.jit.script(module)


def nested(model: torch.jit.ScriptModule, entry: Entry) -> torch.jit.ScriptModule:
    """Give a flat model the inputs and outputs of an entry that was captured.

    Raises:
        ConfigError: A dictionary of outputs has keys that TorchScript does not support.
    """
    outputs = entry.outputs
    with setting(IS_DRY, True), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", _DEPRECATED, DeprecationWarning)
        if is_traceable(outputs.skeleton):
            return _closing(_recorded(model, entry, outputs.skeleton))
        flat = _closing(_recorded(model, entry, list(range(len(outputs.specs)))))
        return _closing(packed(flat, entry.parameter_names, outputs.skeleton))


def _closing(outer: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Give a module the method `close` of the model that it wraps; it is saved with the module."""
    outer.define("def close(self) -> None:\n    self.model.close()\n")
    return outer


def _recorded(model: torch.jit.ScriptModule, entry: Entry, outputs: Skeleton) -> torch.jit.ScriptModule:
    inputs = entry.inputs
    return torch.jit.trace(
        Traced(model, entry.parameter_names, inputs.skeleton, outputs).eval(),
        rebuild(inputs.skeleton, inputs.tensors),
        strict=False,
        check_trace=False,
        _store_inputs=False,
    )


def original_name(module: torch.nn.Module) -> str:
    """Return the name of the class that a ScriptModule was made of; empty for other modules."""
    return str(module.original_name) if isinstance(module, torch.jit.RecursiveScriptModule) else ""


def neuron_models(module: object) -> list[Any]:
    """The `NeuronModel`s inside a traced model."""
    models = []
    if isinstance(module, torch.jit.ScriptModule):
        models = [part for part in module.modules() if original_name(part) == NeuronModel.__name__]
    if not models:
        kind = type(module).__name__
        message = f"There is no traced model in {kind}."
        hint = "Pass the result of trace, or of torch.jit.load of it."
        raise ConfigError(message, hint=hint, type=kind)
    return models


def session_of(model: Any) -> Session:
    """The session of a `NeuronModel`."""
    return ops.session_of_bytes(model.neff)
