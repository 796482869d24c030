"""Checks of what scripts of other libraries ask for against the configuration of a checkpoint, before a compile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig, PretrainedConfig

from ..base.model_facts import facts_of
from ..errors import ConfigError, ShapeError
from ..models import require_group_size
from ..sources import EXPERT_COUNTS, method_of, published_scheme, quantization_of


def require_heads(config: PretrainedConfig, degree: object) -> None:
    """Check that every core has an attention head.

    Args:
        config: configuration of the model.
        degree: cores that share a layer.
    """
    num_heads = facts_of(config.get_text_config(decoder=True)).num_attention_heads
    if isinstance(degree, int) and num_heads is not None:
        require_group_size(degree, num_heads=num_heads, model_type=config.model_type)


def require_vocabulary(draft: int, target: int) -> None:
    """Check that a draft has the tokens of the model that checks it.

    Args:
        draft: number of the draft's tokens.
        target: number of the model's.
    """
    if draft != target:
        raise ConfigError(
            f"The draft has {draft} tokens, and the model {target}.",
            hint="Use a draft with the tokenizer of the model.",
            draft=draft,
            target=target,
        )


def require_quantization(config: PretrainedConfig, scheme: str | None) -> None:
    """Check that a checkpoint with quantized weights is compiled with its own kind of numbers.

    Args:
        config: configuration of the model.
        scheme: the scheme that was asked for; None: that of the checkpoint.
    """
    settings = quantization_of(config)
    published = None if settings is None else published_scheme(settings).value
    if scheme is None or published is None or published.split("-")[0] == scheme.split("-")[0]:
        return
    assert settings is not None
    raise ConfigError(
        f"quantization={scheme!r}, but the weights of the checkpoint are in {method_of(settings)}: {published}.",
        hint="Remove it: the checkpoint is compiled with its own numbers.",
        option="quantization",
        scheme=scheme,
        published=published,
    )


def require_rows(num_prompts: int, batch_size: int, num_each: int = 1) -> None:
    """Check that a batch has room for all prompts, or for so many sequences of each.

    Args:
        num_prompts: prompts of a call.
        batch_size: rows of the compiled batch.
        num_each: beams, or answers, of each prompt.
    """
    num_rows = num_prompts * num_each
    if num_rows > batch_size:
        each = "" if num_each == 1 else f" with {num_each} sequences each"
        raise ShapeError(
            f"{num_prompts} prompts{each} are more than the {batch_size} rows of the compiled batch.",
            hint=f"Pass fewer, or compile the model with batch_size={num_rows}.",
            num_rows=num_rows,
            batch_size=batch_size,
        )


def sequences_each(settings: GenerationConfig, options: Mapping[str, Any]) -> int:
    """Return the rows of each prompt in a call of `generate`: its beams, or its answers.

    Args:
        settings: the generation configuration.
        options: keywords of the call, which come first.
    """
    names = ("num_beams", "num_return_sequences")
    return max(options.get(name) or getattr(settings, name) or 1 for name in names)


def require_experts(config: PretrainedConfig, degree: int) -> None:
    """Check that there are experts to divide.

    Args:
        config: configuration of the model.
        degree: groups of cores that share the experts, as `ep_degree` of other libraries says.
    """
    sizes = config.get_text_config(decoder=True).to_dict()
    sizes |= sizes.get("ffn_config") or {}  # DBRX has them there
    if degree > 1 and not any(sizes.get(name) for name in EXPERT_COUNTS):
        message = f"ep_degree={degree} divides experts, and this {config.model_type} model has none."
        raise ConfigError(message, hint="Remove ep_degree.", option="ep_degree", value=degree)
