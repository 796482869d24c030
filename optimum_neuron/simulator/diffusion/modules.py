"""Components of a pipeline as their libraries define them: built without weights, and captured as an export would.

A component's own code runs on tensors of one run's shapes, so nothing is known here about its layers. A transformer is
divided among cores by its plan of tensor parallelism.

    program = captured(ComponentCall(component=vae, method="decode", inputs={"z": latents}), "float32", num_cores=1)
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...core import TensorSpec
from ...errors import ModelError
from .source import Component

if TYPE_CHECKING:
    from torch import nn

    from ...compiler import Program

KEPT = 32
"""Captured components that are kept: a comparison estimates one pipeline on many instances."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComponentCall:
    """One run of a component."""

    component: Component
    method: str = "forward"
    inputs: Mapping[str, TensorSpec] = dataclasses.field(hash=False)
    """Tensors by keyword; those of a dictionary have its name and a dot before their own."""
    absent: tuple[str, ...] = ()
    """Keys of dictionaries that are None, spelled likewise."""


def completed_config(component: Component) -> Mapping[str, Any]:
    """The configuration of a component, with the defaults of its class.

    Raises:
        ModelError: its library is not installed, or cannot build it.
    """
    config = _described(_key(component)).config
    return dict(config) if isinstance(config, dict) else dict(config.to_dict())


def parameter_bytes(component: Component, dtype: str, num_cores: int) -> int:
    """Bytes of all weights of a component on one of the cores that share it.

    Raises:
        ConfigError: there are more cores than heads.
        ModelError: its library is not installed, or cannot build it.
    """
    module = _described(_key(component)) if num_cores == 1 else _divided(_key(component), num_cores)
    element = TensorSpec(shape=(1,), dtype=dtype).size_bytes
    return sum(parameter.numel() for parameter in module.parameters()) * element


def captured(call: ComponentCall, dtype: str, *, num_cores: int) -> Program:
    """Capture one run of a component on one of the cores that share it, in the dtype of its weights.

    Raises:
        CaptureError: its code is not static.
        ModelError: its library is not installed, or cannot build it.
    """
    inputs = tuple((name, spec.shape, spec.dtype) for name, spec in call.inputs.items())
    return _program(_key(call.component), call.method, inputs, call.absent, dtype, num_cores)


def _key(component: Component) -> str:
    return json.dumps([component.library, component.class_name, dict(component.config)], sort_keys=True)


@functools.lru_cache(maxsize=KEPT)
def _program(
    key: str,
    method: str,
    inputs: tuple[tuple[str, tuple[int, ...], str], ...],
    absent: tuple[str, ...],
    dtype: str,
    num_cores: int,
) -> Program:
    import torch

    from ...compiler import capture, compile_graphs
    from ...models import cast_weights

    module = _build(key) if num_cores == 1 else _divided(key, num_cores)
    cast_weights(module, getattr(torch, dtype))
    specs = {name: TensorSpec(shape=shape, dtype=kind) for name, shape, kind in inputs}
    entry = _entry(module, method, (*specs, *absent))
    graph = functools.partial(capture, entry, name=method, inputs=specs)
    return compile_graphs([lambda shorten: graph(shorten=shorten)], target=None).program


def _entry(module: nn.Module, method: str, names: tuple[str, ...]) -> nn.Module:
    """The module as a function of positional tensors that returns one tensor."""
    from torch import nn

    class Entry(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, *tensors: Any) -> Any:
            named: dict[str, Any] = {}
            for name, tensor in zip(names, (*tensors, *[None] * (len(names) - len(tensors))), strict=True):
                owner, _, key = name.rpartition(".")
                (named.setdefault(owner, {}) if owner else named)[key] = tensor
            result = getattr(self.module, method)(**named, return_dict=False)[0]
            return getattr(result, "parameters", result)  # an encoded picture is a distribution

    return Entry().eval()


@functools.lru_cache(maxsize=KEPT)
def _described(key: str) -> nn.Module:
    """A component to be looked at; others are built anew, because they are changed."""
    return _build(key)


def _build(key: str) -> nn.Module:
    from accelerate import init_empty_weights

    library, class_name, config = json.loads(key)
    try:
        of = getattr(importlib.import_module(library), class_name)
    except ImportError as error:
        message = f"A {class_name} is counted from its own code in {library}, which is not installed."
        raise ModelError(message, hint=f"Run `pip install {library}`.", package=library) from error
    config = {name: value for name, value in config.items() if not name.startswith("_")}
    try:
        with init_empty_weights(include_buffers=False):
            module = of.from_config(config) if library == "diffusers" else of(of.config_class(**config))
    except (ValueError, TypeError, NotImplementedError, AttributeError) as error:
        first = str(error).strip().partition("\n")[0][:200]
        message = f"{library} cannot build a {class_name}: {type(error).__name__}: {first}"
        hint = f"Check its config.json, or install the release of {library} that wrote it."
        raise ModelError(message, hint=hint, class_name=class_name) from error
    return module.eval()


def _divided(key: str, num_cores: int) -> nn.Module:
    """A component with the shapes of one of the cores that share it; whole where it has no plan."""
    from ...models import PLANS, diffusion_plan, split_module

    module: Any = _build(key)
    plan = PLANS.get(getattr(module.config, "model_type", "")) or diffusion_plan(
        path for path, _ in module.named_modules()
    )
    if plan:
        heads = module.config.num_attention_heads
        split_module(module, plan, num_heads=heads, num_kv_heads=heads, group_size=num_cores)
    return module
