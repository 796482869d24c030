"""Types of the fields of a checkpoint's files, as `typed_data.py` checks them, and the sizes in its config.json.

Published files have more fields, and null in many of them. A field is here if something reads it.

transformers takes any number, and a program of 10^7 layers would be built for hours. The limits of sizes are far above
every published model: 126 layers, 16,384 wide, 1.2 million tokens in a vocabulary, 10 million positions, 2,048 experts.

    require_sizes({"num_attention_heads": 0}, path)   # ModelError: num_attention_heads is 0 ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from ..base.typed_data import Inside, Misfit, Range, misfits, require_types
from ..errors import ModelError
from ..files.plain_json import read_json, read_object

_COUNT = Annotated[int, Range(0, 2**40)]
_SOME = Annotated[int, Range(1, 65_536)]
_NUMBER = Annotated[float, Range(-1e9, 1e9)]
_SHARE = Annotated[float, Range(0, 1)]
_POSITIVE = Annotated[float, Range(1e-9, 1e9)]
_SIDE = Literal["left", "right"]
_FLAG = bool | None

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
_STACKS = ("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers")
_HEADS = ("num_attention_heads", "num_key_value_heads", "n_head", "n_heads", "num_heads")
_WIDTHS = ("hidden_size", "d_model", "n_embd")
_HEAD_WIDTHS = ("head_dim", "d_kv")
_INNER_WIDTHS = ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "moe_intermediate_size")
_LATENT_WIDTHS = ("kv_lora_rank", "q_lora_rank", "v_head_dim", "qk_nope_head_dim", "qk_rope_head_dim")
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Fields with the number of experts."""
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
    **dict.fromkeys((*EXPERT_COUNTS, *_CHOSEN), _size(0, 65_536)),
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
    experts = {key: sizes[key] for key in EXPERT_COUNTS if key in sizes}
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


GENERATION: dict[str, Any] = {
    **dict.fromkeys(("max_length", "min_length", "max_new_tokens", "min_new_tokens", "top_k"), _COUNT | None),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), _COUNT | None),
    **dict.fromkeys(("prompt_lookup_num_tokens", "num_assistant_tokens", "max_matching_ngram_size"), _COUNT | None),
    **dict.fromkeys(("num_beams", "num_return_sequences", "num_beam_groups"), _SOME | None),
    **dict.fromkeys(("do_sample", "use_cache", "renormalize_logits", "remove_invalid_values"), _FLAG),
    **dict.fromkeys(("output_scores", "output_logits", "return_dict_in_generate", "is_multilingual"), _FLAG),
    "early_stopping": bool | Literal["never"] | None,
    **dict.fromkeys(
        ("temperature", "diversity_penalty", "guidance_scale", "length_penalty", "max_time"), _NUMBER | None
    ),
    **dict.fromkeys(("top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"), _SHARE | None),
    "assistant_confidence_threshold": _SHARE | None,
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty"), _POSITIVE | None),
    **dict.fromkeys(
        (
            *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id"),
            *("forced_eos_token_id", "no_timestamps_token_id", "suppress_tokens", "begin_suppress_tokens"),
        ),
        TOKENS,
    ),
    "bad_words_ids": list[list[int]] | None,
    "forced_decoder_ids": list[list[int | None]] | None,
    **dict.fromkeys(("lang_to_id", "task_to_id"), dict[str, int] | None),
    "stop_strings": str | list[str] | None,
    **dict.fromkeys(("cache_implementation", "num_assistant_tokens_schedule"), str | None),
}
"""generation_config.json."""

_TOKEN_TEXT = str | dict[str, Any] | None

TOKENIZER: dict[str, Any] = {
    "model_max_length": Annotated[float, Range(1, 1e31)] | None,
    **dict.fromkeys(("padding_side", "truncation_side"), _SIDE | None),
    "chat_template": str | dict[str, str] | list[dict[str, str]] | None,
    "tokenizer_class": str | None,
    "added_tokens_decoder": dict[str, dict[str, Any]] | None,
    "model_input_names": list[str] | None,
    **dict.fromkeys([f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")], _TOKEN_TEXT),
    "additional_special_tokens": list[_TOKEN_TEXT] | None,
    "extra_special_tokens": list[_TOKEN_TEXT] | dict[str, _TOKEN_TEXT] | None,
    **dict.fromkeys(("clean_up_tokenization_spaces", "split_special_tokens", "add_prefix_space"), _FLAG),
    **dict.fromkeys(("add_bos_token", "add_eos_token", "do_lower_case", "strip_accents"), _FLAG),
}
"""tokenizer_config.json."""

_NAMES = str | list[str] | None
_RANK = Annotated[int, Range(1, 65_536)]

ADAPTER: dict[str, Any] = {
    **dict.fromkeys(("peft_type", "task_type", "base_model_name_or_path", "revision"), str | None),
    **dict.fromkeys(("target_modules", "exclude_modules", "modules_to_save", "layers_pattern"), _NAMES),
    "r": Annotated[int, Range(0, 65_536)] | None,
    "lora_alpha": _NUMBER,
    **dict.fromkeys(("use_rslora", "use_dora", "lora_bias", "inference_mode"), _FLAG),
    "fan_in_fan_out": _FLAG,
    "bias": bool | str | None,
    "lora_dropout": _SHARE | None,
    "layers_to_transform": int | list[int] | None,
    "trainable_token_indices": list[int] | dict[str, list[int]] | None,
    "target_parameters": list[str] | None,
    "init_lora_weights": bool | str | None,
    "auto_mapping": dict[str, Any] | None,
}
"""adapter_config.json of every method."""
LORA: dict[str, Any] = {
    "r": _RANK,
    "rank_pattern": dict[str, _RANK] | None,
    "alpha_pattern": dict[str, _NUMBER] | None,
}
"""adapter_config.json of LoRA, in addition."""

_WIDTH = Annotated[int, Range(1, 2**24)]

SENTENCE_MODULE: dict[str, Any] = {"type": str, "path": Annotated[str, Inside()]}
"""An element of modules.json."""
SENTENCE_LIMITS: dict[str, Any] = {
    "max_seq_length": Annotated[int, Range(1, 2**40)] | None,
    "do_lower_case": _FLAG,
    "modality_config": dict[str, Any] | None,
}
"""sentence_bert_config.json."""
SENTENCE_FACTS: dict[str, Any] = {
    "truncate_dim": _WIDTH | None,
    "prompts": dict[str, str | None] | None,
    "default_prompt_name": str | None,
    "similarity_fn_name": Literal["cosine", "dot", "euclidean", "manhattan"] | None,
}
"""config_sentence_transformers.json."""
SENTENCE_VECTORS: dict[str, Any] = {
    **dict.fromkeys(("in_features", "out_features", "dimension"), _WIDTH),
    **dict.fromkeys(("activation_function", "module_input_name", "module_output_name"), str | None),
    **dict.fromkeys(("bias", "use_residual"), _FLAG),
    "pooling_mode": str | None,
    "include_prompt": bool,
    **dict.fromkeys(
        [f"pooling_mode_{mode}" for mode in ("cls_token", "max_tokens", "mean_tokens", "lasttoken")],
        _FLAG,
    ),
}
"""config.json of a module that pools hidden states or changes vectors."""


def read_typed(path: Path, types: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON object of a file that belongs to a model, with fields of these types."""
    data = read_object(path)
    require_types(data, types, path)
    return data


def read_modules(path: Path) -> list[tuple[str, str]]:
    """Return the type and the folder of each module in modules.json, in order."""
    rows = read_json(path)
    require_types(rows, list[dict[str, Any]], path)
    required = {"type": "", "path": None}
    for row in rows:
        require_types({**required, **row}, SENTENCE_MODULE, path)
    return [(row["type"].rpartition(".")[2], row["path"]) for row in rows]
