"""The programs of a pipeline: the component that each is of, its calls, its configuration, and who shares it.

part_config = config_of_part(config, "unet", calls, "unet", model)
whole_config([part_config])                # of the whole pipeline, from those of its programs
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from ...base.model_facts import facts_of
from ...engine import Call
from ...errors import ConfigError
from ...models import PLANS, diffusion_plan, require_group_size, split_module
from ...weights import Shards
from .component import METHODS, part_name, without_absent
from .configuration import NeuronDiffusionConfig

TRANSFORMERS = ("FluxTransformer2DModel", "SD3Transformer2DModel", "PixArtTransformer2DModel")
"""Diffusion transformers that cores share."""
_ENCODERS = ("T5EncoderModel",)
"""Text encoders that are large enough to be shared."""


def component_of(part: str, names: Iterable[str]) -> str:
    """Return the component, one of some names, that a program is of."""
    return next(name for name in names if part in {part_name(name, method) for method in METHODS})


def calls_of(metadata: Mapping[str, Any]) -> list[Call]:
    """Return how a program is called, from its metadata; older folders recorded arguments that change nothing."""
    calls = [Call.from_dict(row) for row in metadata["calls"]]
    return [dataclasses.replace(call, arguments={"dict": without_absent(call.arguments["dict"])}) for call in calls]


def is_divided(component: str, config: NeuronDiffusionConfig) -> bool:
    """Return whether a component is loaded on every core."""
    return config.data_parallel_mode in ("all", component)


def config_of_part(
    config: NeuronDiffusionConfig, part: str, calls: Sequence[Call], component: str, model: nn.Module
) -> NeuronDiffusionConfig:
    """Return the configuration of one program: its calls, and the cores that share it.

    Where two cores share the rows of a step, calls have half as many.
    """
    if is_divided(component, config):
        calls = [call if call.num_rows in (None, 1) else call.with_rows((call.num_rows + 1) // 2) for call in calls]
    return dataclasses.replace(
        config,
        component=part,
        calls=tuple(call.to_dict() for call in calls),
        tensor_parallel_size=config.tensor_parallel_size if is_shared(model) else 1,
    )


def whole_config(configs: Sequence[NeuronDiffusionConfig]) -> NeuronDiffusionConfig:
    """Return the configuration of a pipeline from those of its programs."""
    num_cores = max(config.tensor_parallel_size for config in configs)
    return dataclasses.replace(configs[0], component="", calls=(), tensor_parallel_size=num_cores)


def is_shared(model: nn.Module) -> bool:
    """Return whether the cores of tensor parallelism share a component; the others have one core."""
    return type(model).__name__ in (*TRANSFORMERS, *_ENCODERS)


def require_shared(models: dict[str, nn.Module], group_size: int) -> None:
    """Reject tensor parallelism of a pipeline without a component that cores share."""
    if group_size > 1 and not any(type(model).__name__ in TRANSFORMERS for model in models.values()):
        names = ", ".join(sorted({type(model).__name__ for model in models.values()}))
        message = f"tensor_parallel_size={group_size} is not supported: cores cannot share one of {names}."
        hint = f"Pass 1. Cores share {', '.join(TRANSFORMERS)}; data_parallel_mode divides the rows of a step."
        raise ConfigError(message, hint=hint, option="tensor_parallel_size", value=group_size)


def split_component(model: nn.Module, group_size: int) -> Shards:
    """Give a component without weights the shapes of one core."""
    if group_size == 1:
        return Shards()
    name = facts_of(model.config).model_type or type(model).__name__
    plan = PLANS.get(name) or diffusion_plan(path for path, _ in model.named_modules())
    heads = model.config.num_attention_heads
    require_group_size(group_size, num_heads=heads, model_type=name)
    return split_module(model, plan, num_heads=heads, num_kv_heads=heads, group_size=group_size)
