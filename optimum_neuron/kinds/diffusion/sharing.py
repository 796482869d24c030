"""Which components of a pipeline several cores share, and how: diffusion transformers and T5.

It knows plans of tensor parallelism, and no calls. Transformers whose norms go over all heads are not divided.

    shards = split_component(model, group_size=2)
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ...errors import ConfigError
from ...models import PLANS, diffusion_plan, require_group_size, split_module
from ...weights import Shards

TRANSFORMERS = ("FluxTransformer2DModel", "SD3Transformer2DModel", "PixArtTransformer2DModel")
"""Diffusion transformers that cores share."""
_ENCODERS = ("T5EncoderModel",)
"""Text encoders that are large enough to be shared."""


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


def split_component(model: Any, group_size: int) -> Shards:
    """Give a component without weights the shapes of one core."""
    if group_size == 1:
        return Shards()
    name = getattr(model.config, "model_type", type(model).__name__)
    plan = PLANS.get(name) or diffusion_plan(path for path, _ in model.named_modules())
    heads = model.config.num_attention_heads
    require_group_size(group_size, num_heads=heads, model_type=name)
    return split_module(model, plan, num_heads=heads, num_kv_heads=heads, group_size=group_size)
