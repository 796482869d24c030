"""Models of a diffusion pipeline: their configuration, their class, and instances of it without weights.

An instance is of its stock class, as pipelines read `unet.config`, or a layer's sizes; `redirected` lets its methods
call something else, the engine or the recorder of a dry run.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import nn

from ...errors import ConfigError, ModelError
from ...models import cast_weights, without_weights
from ...upstream.torch import parse_to
from ..source import ModelSource, first_line
from .slicing import remedy
from .variants import NETS, module_from

METHODS = ("forward", "encode", "decode")
"""Methods of models that pipelines call."""

Caller = Callable[[str, dict[str, Any]], Any]
"""Carries out a method of a component with arguments by name."""


class DiffusersConfig:
    """The configuration of a model or a pipeline of diffusers, with the interface of transformers' configurations."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = {name: value for name, value in data.items() if name not in ("neuron", "dtype")}
        self.model_type = str(data["_class_name"])
        self.architectures = [self.model_type]
        self.dtype = data.get("dtype")
        self.num_labels = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build from the content of a file."""
        return cls(data)

    def get_text_config(self, decoder: bool = False) -> Self:
        """Return the configuration itself."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dict(self._data)

    def to_json_string(self, use_diff: bool = True) -> str:
        """Return the content of its file."""
        return json.dumps(self._data, sort_keys=True)


def component_class(config: Any) -> Any:
    """Return the stock class of a component."""
    import diffusers
    import transformers

    library = diffusers if isinstance(config, DiffusersConfig) else transformers
    name = (config.architectures or ["a model without a name"])[0]
    if NETS in config.to_dict():
        from diffusers.models.controlnets.multicontrolnet import MultiControlNetModel

        return MultiControlNetModel
    if not hasattr(library, name):
        message = f"{library.__name__} has no {name}."
        raise ModelError(message, hint=f"Upgrade {library.__name__}, or check config.json.", architecture=name)
    return getattr(library, name)


def empty_component(source: ModelSource, dtype: str) -> nn.Module:
    """Build a component whose parameters have shapes and no values."""
    if source.module is not None:
        return _without_weights(source.module)
    kind = component_class(source.config)
    try:
        with without_weights():
            if isinstance(source.config, DiffusersConfig):
                model = module_from(kind, source.config.to_dict())
            else:
                model = kind._from_config(copy.deepcopy(source.config))
                model.tie_weights()
    except (ValueError, TypeError, ImportError, AttributeError, LookupError) as error:
        message = f"A {kind.__name__} cannot be built from {source.folder}: {first_line(error)}"
        raise ModelError(message, hint="Check its config.json.", folder=str(source.folder)) from error
    cast_weights(model, getattr(torch, dtype))
    return model.requires_grad_(False).eval()


def _without_weights(module: nn.Module) -> nn.Module:
    """A copy of a model in memory in which parameters have no values; tied ones stay tied."""
    empty: dict[int, Any] = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
        for parameter in module.parameters()
    }
    return copy.deepcopy(module, empty).eval()


def load_component(source: ModelSource, dtype: str) -> tuple[Any, list[str]]:
    """Load a component with its weights; also return the names of weights that the checkpoint lacks."""
    if source.module is not None:
        wanted = getattr(torch, dtype)
        return source.module if source.module.dtype == wanted else copy.deepcopy(source.module).to(wanted), []
    kind = component_class(source.config)
    try:
        model, info = kind.from_pretrained(source.folder, torch_dtype=getattr(torch, dtype), output_loading_info=True)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        message = f"A {kind.__name__} cannot be loaded from {source.folder}: {first_line(error)}"
        raise ModelError(message, hint="Download the pipeline again.", folder=str(source.folder)) from error
    return model.eval(), sorted(info["missing_keys"])


def part_name(component: str, method: str) -> str:
    """Return the folder of a program: that of the component, or one for each half of an autoencoder.

    >>> part_name("unet", "forward"), part_name("vae", "decode")
    ('unet', 'vae_decoder')
    """
    return component if method == "forward" else f"{component}_{method}r"


_ABSENT = (("return_dict", True), ("output_hidden_states", False), ("output_attentions", False))
"""Arguments that say what is the case without them."""


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
    plain = {name: value for name, value in arguments.items() if value is not None and name != "generator"}
    return {name: value for name, value in plain.items() if not any(name == k and value is v for k, v in _ABSENT)}


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

    def to(self, *args: Any, **kwargs: Any) -> Any:
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
    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        message = f"{name} is not supported by a compiled {type(self).__name__}: it would change the compiled code."
        raise ConfigError(message, hint=remedy(name), option=name)

    refuse.__name__, refuse.__doc__ = name, "Refused: the code is compiled."
    return refuse
