"""Sizes in a config.json: types and ranges, checked once where the file is read.

transformers takes any number, and a program of 10^7 layers would be built for hours. The limits are far above every
published model: 126 layers, 16,384 wide, 1.2 million tokens in a vocabulary, 10 million positions, 2,048 experts.

    require_sizes({"num_attention_heads": 0}, path)   # ModelError: num_attention_heads is 0 ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_STACKS = ("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers")
_HEADS = ("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads")
_WIDTHS = ("hidden_size", "d_model", "n_embd")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")

_RANGES: dict[str, tuple[int, int]] = {
    **dict.fromkeys(_LAYERS, (1, 10_000)),
    **dict.fromkeys(_STACKS, (0, 10_000)),
    **dict.fromkeys(_HEADS, (1, 65_536)),
    **dict.fromkeys(_WIDTHS, (1, 2**24)),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "n_inner", "head_dim"), (0, 2**26)),
    **dict.fromkeys(_EXPERTS, (0, 65_536)),
    "vocab_size": (0, 2**28),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), (-1, 2**40)),
}
"""Smallest and largest value by key; positions of -1 are without a limit, as in DeBERTa and ESM."""

_MOST_EXPERTS = 2**20
"""Experts of all layers: each is captured."""


def require_sizes(data: Mapping[str, Any], path: Path) -> None:
    """Check the sizes of a configuration and of the configurations in it.

    Raises:
        ModelError: one has another type, or is out of its range; the details have the file, the key and the value.
    """
    for key, value, limit in _wrong(data, ""):
        message = f"{path}: {key} is {value!r}, but must be {limit}."
        raise ModelError(message, hint="Correct the file, or copy it again.", file=str(path), key=key, value=value)


def _wrong(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Yield keys with values out of range, and the range."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _wrong(value, f"{prefix}{key}.")
        elif key in _RANGES and value is not None:
            # A list has a value for each layer or stage; layers without a block have 0.
            values, (least, most) = (
                (value, (0, _RANGES[key][1])) if isinstance(value, list) else ([value], _RANGES[key])
            )
            if not all(_is_integer(one) and least <= one <= most for one in values if one is not None):
                yield f"{prefix}{key}", _short(value), f"an integer from {least} to {most}"
    layers = max((data[key] for key in _LAYERS if type(data.get(key)) is int), default=1)
    for key in _EXPERTS:
        if type(data.get(key)) is int and layers * data[key] > _MOST_EXPERTS:
            yield f"{prefix}{key}", data[key], f"at most {_MOST_EXPERTS // max(layers, 1)} for {layers} layers"


def _is_integer(value: Any) -> bool:
    """Whether a number is an integer; published configurations have some as 1200.0."""
    return type(value) is int or (isinstance(value, float) and value.is_integer())


def _short(value: Any) -> Any:
    """A value that a message can show."""
    return value if len(repr(value)) <= 100 else repr(value)[:100]
