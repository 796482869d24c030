"""Which layers of a transformers model see only the newest tokens, so that they need to keep no others.

The configuration names a window and the layers that have it; a mask for each kind of layer is all that the model's code
has to take. Code that comes with a checkpoint may do more with the cache, so its layers keep every token.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base.core import Choice
from ...base.model_facts import facts_of
from ..common import LayerState, ring_choice, seen_within
from .adapt import local_layers
from .model import FULL_WITHIN_WINDOW, GenericDecoder


def ring_states(
    decoder: GenericDecoder, states: Sequence[LayerState], num_tokens: int | None
) -> tuple[tuple[LayerState, ...], Choice[str] | None]:
    """Return the states of layers, with rings where a sequence of so many tokens is longer than what they see.

    The choice says why; None if no layer has a window that is shorter.
    """
    windows = layer_windows(decoder, len(states))
    rings = tuple(
        seen_within(state, None if window is None or (num_tokens is not None and window >= num_tokens) else window)
        for state, window in zip(states, windows, strict=True)
    )
    choice = ring_choice(rings)
    if choice is None:
        return tuple(states), None
    if type(decoder.model).__module__.startswith("transformers."):
        return rings, choice
    reason = "code that comes with a checkpoint may count on a slot for every token"
    return tuple(states), Choice(value="whole", reason=reason)


def layer_windows(decoder: GenericDecoder, num_layers: int) -> list[int | None]:
    """Return how many tokens each layer sees; None for all."""
    config = decoder.text_config
    window = facts_of(config).sliding_window
    windows = {
        **dict.fromkeys(("sliding_attention", "hybrid_sliding"), window),
        "chunked_attention": facts_of(config).attention_chunk_size,
        "full_attention": window if config.model_type in FULL_WITHIN_WINDOW else None,
    }
    kinds = facts_of(config).layer_types or ["sliding_attention"] * num_layers
    local = {module.attention.layer_id: window for module, window in local_layers(decoder.model)}
    return [local.get(layer, windows.get(kinds[layer])) for layer in range(num_layers)]
