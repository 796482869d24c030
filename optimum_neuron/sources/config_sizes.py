"""Sizes in a config.json: types, ranges and products, checked once where the file is read.

transformers takes any number, and a program of 10^7 layers would be built for hours. The limits are far above every
published model: 126 layers, 16,384 wide, 1.2 million tokens in a vocabulary, 10 million positions, 2,048 experts.

    require_sizes({"num_attention_heads": 0}, path)   # ModelError: num_attention_heads is 0 ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from ..base.typed_data import Misfit, Range, misfits
from ..errors import ModelError

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_STACKS = ("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers")
_HEADS = ("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads")
_WIDTHS = ("hidden_size", "d_model", "n_embd")
_HEAD_WIDTHS = ("head_dim", "d_kv")
_INNER_WIDTHS = ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "moe_intermediate_size")
_LATENT_WIDTHS = ("kv_lora_rank", "q_lora_rank", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k")
_POSITIONS = ("max_position_embeddings", "n_positions", "original_max_position_embeddings")
_PICTURES = ("image_size", "patch_size", "num_channels")
_BASES = ("rope_theta", "global_rope_theta", "local_rope_theta", "rope_local_base_freq")
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_epsilon", "norm_eps")
_SHARES = ("partial_rotary_factor", "rotary_pct")
_FACTORS = ("factor", "low_freq_factor", "high_freq_factor")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def _size(least: int, most: int, *, of_each: int = 0) -> Any:
    """An integer; a list has a value for each layer or stage, and layers without a block have 0."""
    every = Annotated[float, Range(of_each, most, whole=True)]
    return Annotated[float, Range(least, most, whole=True)] | list[every | None] | None


def _number(least: float, most: float) -> Any:
    """A number, or one for each layer."""
    one = Annotated[float, Range(least, most)]
    return one | list[one | None] | None


_TOKEN = Annotated[int, Range(-(2**31), 2**31)]
TOKENS: Any = _TOKEN | list[_TOKEN] | None
"""Type of special tokens: one or several."""

_FIELDS: dict[str, Any] = {
    **dict.fromkeys(_LAYERS, _size(1, 10_000)),
    **dict.fromkeys(_STACKS, _size(0, 10_000)),
    **dict.fromkeys(_HEADS, _size(1, 65_536)),
    **dict.fromkeys(_WIDTHS, _size(1, 2**24)),
    **dict.fromkeys(_HEAD_WIDTHS, _size(0, 2**24)),
    **dict.fromkeys((*_INNER_WIDTHS, *_LATENT_WIDTHS), _size(0, 2**26)),
    **dict.fromkeys((*_EXPERTS, *_CHOSEN), _size(0, 65_536)),
    "vocab_size": _size(1, 2**28),
    **dict.fromkeys(_POSITIONS, _size(-1, 2**40)),
    **dict.fromkeys(_PICTURES, _size(1, 2**20, of_each=1) | dict[str, Any]),
    "sliding_window": _size(-1, 2**40),
    **dict.fromkeys(_BASES, _number(1e-6, 1e15)),
    **dict.fromkeys(_EPSILONS, _number(0, 1)),
    **dict.fromkeys(_SHARES, _number(0, 1)),
    **dict.fromkeys(_FACTORS, _number(1e-6, 1e9)),
    **dict.fromkeys(_TOKENS, TOKENS),
}
"""Type by key; positions of -1 are without a limit, as in DeBERTa and ESM."""

_MOST_EXPERTS = 2**20
"""Experts of all layers: each is captured."""


def require_sizes(data: Mapping[str, Any], path: Path) -> None:
    """Check the sizes of a configuration and of the configurations in it."""
    for misfit in _wrong(data, ""):
        hint = "Correct the file, or copy it again."
        raise ModelError(f"{path}: {misfit}.", hint=hint, file=str(path), key=misfit.key, value=misfit.value)


def _wrong(data: Mapping[str, Any], prefix: str) -> Iterator[Misfit]:
    """Yield values of a configuration that are not of their type, or that do not fit together."""
    for key, value in data.items():
        if isinstance(value, Mapping) and key not in _PICTURES:
            yield from _wrong(value, f"{prefix}{key}.")
        elif key in _FIELDS:
            yield from misfits(value, _FIELDS[key], f"{prefix}{key}")
    for key, value, expected in _products({key: value for key, value in data.items() if type(value) is int}):
        yield Misfit(key=f"{prefix}{key}", value=value, expected=expected)


def _products(sizes: Mapping[str, int]) -> Iterator[tuple[str, int, str]]:
    """Yield sizes that do not fit others of the same configuration."""
    layers = max((sizes[key] for key in _LAYERS if key in sizes), default=1)
    experts = {key: sizes[key] for key in _EXPERTS if key in sizes}
    for key, number in experts.items():
        if layers * number > _MOST_EXPERTS:
            yield key, number, f"at most {_MOST_EXPERTS // max(layers, 1)} for {layers} layers"
    for key in _CHOSEN:
        if experts and sizes.get(key, 0) > max(experts.values()) > 1:
            yield key, sizes[key], f"at most {max(experts.values())}, the number of experts"
    for key in _HEAD_WIDTHS:
        if sizes.get(key) == 0 and not sizes.get("kv_lora_rank"):  # latent attention has widths of its own
            yield key, 0, "at least 1"
    heads, shared = sizes.get("num_attention_heads", 0), sizes.get("num_key_value_heads", 1)
    if heads > shared > 0 and heads % shared:
        yield "num_key_value_heads", shared, f"a divisor of {heads}, the number of attention heads"
