"""Rotary frequencies that follow the length of a sequence: fixed, where no compiled sequence is long enough for others.

transformers computes those of `dynamic` and `longrope` anew in `forward` (5.23, `modeling_rope_utils.py`), from the
largest position of the batch. Padding counts there, so a static graph cannot do the same; but up to the length that the
model was trained for first, the frequencies are those that its modules begin with.
"""

from __future__ import annotations

from torch import nn

from ...base.foreign import module_facts
from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...errors import CaptureError

LENGTH_DEPENDENT = ("dynamic", "longrope")
"""Rotary scalings whose frequencies follow the length."""


def fix_frequencies(model: nn.Module, text_config: PreTrainedConfig, num_tokens: int | None) -> None:
    """Keep the frequencies of short sequences in a transformers model.

    Args:
        model: its rotary modules have `rope_type`, one or one for each type of layer.
        num_tokens: length of the longest sequence; None if it is not known.
    """
    limits = length_limits(text_config)
    longer = {kind: limit for kind, limit in limits.items() if num_tokens is None or num_tokens > limit}
    if longer:
        limit = min(longer.values())
        raise CaptureError(
            f"The frequencies of rope_type {', '.join(longer)} are others beyond {limit} tokens, which a static graph "
            f"cannot follow; sequence_length is {num_tokens}.",
            hint=f"Pass sequence_length={limit} or less, or set rope_parameters in config.json to fixed ones.",
            rope_types=sorted(longer),
            limit=limit,
            sequence_length=num_tokens,
        )
    for module in model.modules() if limits else ():
        kinds = module_facts(module).rope_type
        if isinstance(kinds, dict):
            module.rope_type = {layer: "default" if kind in limits else kind for layer, kind in kinds.items()}
        elif kinds in limits:
            module.rope_type = "default"


def length_limits(text_config: PreTrainedConfig) -> dict[str, int]:
    """Return the rotary scalings of a configuration that follow the length, with the length where that begins."""
    rotary = facts_of(text_config).rope_parameters or {}
    # One setting, or one for each type of layer.
    settings = [rotary, *(value for value in rotary.values() if isinstance(value, dict))]
    limits = {}
    for setting in settings:
        if (kind := setting.get("rope_type")) in LENGTH_DEPENDENT:
            longest = text_config.max_position_embeddings
            limits[kind] = setting.get("original_max_position_embeddings", longest) if kind == "longrope" else longest
    return limits
