"""Guidance of a call: a pipeline that was exported without guidance (`guidance_scale` of 1 or less) has none.

Guidance needs a second row for each picture in every step. It knows the arguments of stock pipelines, no programs.

    if adds_rows(pipe):
        require_guidance(config, {"guidance_scale": 7.5})
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...base.foreign import module_facts, pipeline_facts
from ...errors import ConfigError
from ...kinds.diffusion import NeuronDiffusionConfig

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_SMALLEST = 1.0
"""Guidance of diffusers begins above this scale."""

_PROMPTS = ("negative_prompt", "negative_prompt_2", "negative_prompt_3", "negative_prompt_embeds")
"""Arguments of diffusers for what a picture should not show."""


def adds_rows(pipe: DiffusionPipeline) -> bool:
    """Return whether `guidance_scale` of a pipeline adds rows; elsewhere it is an input of the model (Flux, LCM)."""
    names = inspect.signature(pipe.stock.__call__).parameters
    settings = module_facts(pipeline_facts(pipe).unet).config or {}
    is_embedded = "true_cfg_scale" in names or settings.get("time_cond_proj_dim")
    return {"guidance_scale", "negative_prompt"} <= names.keys() and not is_embedded


def require_guidance(config: NeuronDiffusionConfig, given: Mapping[str, Any]) -> None:
    """Check that a call asks for guidance only where it was compiled.

    Args:
        config: configuration of the export.
        given: arguments of the call by name.
    """
    exported = config.guidance_scale
    if exported is None or exported > _SMALLEST:
        return
    scale = given.get("guidance_scale")
    if scale is not None and scale > _SMALLEST:
        asked = {"guidance_scale": scale}
    else:
        asked = {k: v for k, v in given.items() if k in _PROMPTS and _says_something(v)}
    if asked:
        name = next(iter(asked))
        shown = f"{name}={scale}" if name == "guidance_scale" else name
        message = f"{shown} needs guidance, and the pipeline was exported without it (guidance_scale={exported:g})."
        hint = f"Remove {name}, or export with a guidance_scale above 1, for example 7.5."
        raise ConfigError(message, hint=hint, option=name, exported=exported)


def _says_something(prompt: object) -> bool:
    """Return whether a negative prompt, or embeddings of one, can have an effect."""
    if isinstance(prompt, (list, tuple)):
        return any(_says_something(one) for one in prompt)
    return bool(prompt) if isinstance(prompt, str) else prompt is not None
