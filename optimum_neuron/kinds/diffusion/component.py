"""Calls of the models of a diffusion pipeline: `redirected` lets their methods call the engine or a recorder.

A redirected model is of its stock class, as pipelines read `unet.config`, or a layer's sizes.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ...errors import ConfigError
from ...upstream.torch import parse_to
from .slicing import remedy

METHODS = ("forward", "encode", "decode")
"""Methods of models that pipelines call."""

Caller = Callable[[str, dict[str, Any]], Any]
"""Carries out a method of a component with arguments by name."""


def part_name(component: str, method: str) -> str:
    """Return the folder of a program: that of the component, or one for each half of an autoencoder.

    >>> part_name("unet", "forward"), part_name("vae", "decode")
    ('unet', 'vae_decoder')
    """
    return component if method == "forward" else f"{component}_{method}r"


_ABSENT = (("return_dict", True), ("output_hidden_states", False), ("output_attentions", False))
"""Arguments that change nothing: they ask for what a call without them does."""


def arguments_of(module: nn.Module, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name, except arguments with their default value."""
    signature = inspect.signature(getattr(type(module), method))
    bound = signature.bind(module, *args, **kwargs).arguments
    bound.pop("self", None)
    arguments: dict[str, Any] = {}
    for name, value in bound.items():
        parameter = signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        elif value is not None and not (isinstance(value, (bool, int, str)) and value == parameter.default):
            arguments[name] = value
    # Decoders take a generator and draw nothing with it, and results are always of a class or a tuple of one.
    return without_absent(
        {name: value for name, value in arguments.items() if value is not None and name != "generator"}
    )


def without_absent(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments, or trees of them, without the arguments that change nothing."""
    return {name: value for name, value in arguments.items() if not any(name == k and value is v for k, v in _ABSENT)}


def redirected(module: nn.Module, caller: Caller) -> Any:
    """Return an object of the module's class whose methods go to a caller; it shares configuration and layers."""
    stock = type(module)
    methods = {name: _redirect(name, stock) for name in METHODS if callable(getattr(stock, name, None))}
    methods |= {name: _refusal(name) for name in _CHANGES if callable(getattr(stock, name, None))}
    other = copy.copy(module)
    other.__class__ = type(stock.__name__, (CompiledComponent, stock), {"__module__": stock.__module__, **methods})
    object.__setattr__(other, "_caller", caller)
    object.__setattr__(other, "_original", module)
    return other


def _redirect(method: str, stock: type) -> Any:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._caller(method, arguments_of(self._original, method, args, kwargs))

    call.__name__, call.__doc__ = method, getattr(stock, method).__doc__
    call.__signature__ = inspect.signature(getattr(stock, method))  # type: ignore[attr-defined]
    return call


class CompiledComponent:
    """What a component without weights says of itself."""

    _original: nn.Module

    @property
    def device(self) -> torch.device:
        """Device of inputs and outputs, the CPU."""
        return torch.device("cpu")

    def to(self, *args: object, **kwargs: object) -> Any:
        """Accept the CPU and "neuron"; a dtype is ignored, as pipelines cast their decoder for a while.

        Raises:
            ConfigError: the arguments name another device.
        """
        device, *_ = parse_to(*args, **kwargs)
        if device is not None and device.type not in ("cpu", "neuron"):
            message = f"A compiled {type(self).__name__} cannot be moved to {device}."
            raise ConfigError(message, hint="Remove to().", device=str(device))
        return self


_CHANGES = (
    *("set_attn_processor", "set_default_attn_processor", "set_attention_slice", "set_attention_backend"),
    *("fuse_qkv_projections", "unfuse_qkv_projections", "enable_freeu", "disable_freeu", "enable_forward_chunking"),
    *("enable_tiling", "disable_tiling", "enable_slicing", "disable_slicing"),
)
"""Methods of models that change how they compute."""


def _refusal(name: str) -> Any:
    def refuse(self: object, *args: object, **kwargs: object) -> None:
        message = f"{name} is not supported by a compiled {type(self).__name__}: it would change the compiled code."
        raise ConfigError(message, hint=remedy(name), option=name)

    refuse.__name__, refuse.__doc__ = name, "Refused: the code is compiled."
    return refuse
