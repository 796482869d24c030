"""Types of the fields of a checkpoint's files, as `typed_data.py` checks them; `config_sizes.py` has config.json's.

Published files have more fields, and null in many of them. A field is here if something reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from ..base.typed_data import Inside, Range, require_types
from ..files.plain_json import read_json, read_object
from .config_sizes import TOKENS

_COUNT = Annotated[int, Range(0, 2**40)]
_SOME = Annotated[int, Range(1, 65_536)]
_NUMBER = Annotated[float, Range(-1e9, 1e9)]
_SHARE = Annotated[float, Range(0, 1)]
_POSITIVE = Annotated[float, Range(1e-9, 1e9)]
_SIDE = Literal["left", "right"]
_FLAG = bool | None

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
