"""Settings of a GGUF file as fields of a transformers configuration, with the defaults of llama.cpp.

transformers reads the sizes; other settings that change results, such as scaled rotary positions, it leaves out. Each
setting under the name of the architecture is read here or by transformers, or it is an error that names it, and so is
a tensor that is read by nothing.

    apply_gguf_settings(config, file)
    require_all_read(file, config, read={"token_embd.weight"})
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..base.typed_data import Range, require_types
from ..base.wording import listed
from ..errors import ModelError
from .gguf_file import GgufFile
from .gguf_rotary import FACTORS, GGUF_HINT, read_rotary_settings, unsupported_setting

_FIELDS: dict[str, tuple[str, ...]] = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "feed_forward_length": ("ffn_hidden_size", "n_inner", "intermediate_size"),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", "norm_eps", "layer_norm_epsilon"),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "vocab_size": ("vocab_size",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "use_parallel_residual": ("use_parallel_residual",),
}
"""Fields of configurations that hold a setting; the first that a configuration has is set."""
_NEUTRAL: dict[str, Any] = {
    "expert_count": 0,
    "expert_used_count": 0,
    "expert_weights_scale": 0.0,
    "expert_group_count": 0,
    "expert_group_used_count": 0,
    "leading_dense_block_count": 0,
    "nextn_predict_layers": 0,
    "feed_forward_length": 0,
    "attention.head_count": 0,
    "attention.causal": True,
    "attention.max_alibi_bias": 0.0,
    "attention.clamp_kqv": 0.0,
    "attention.scale": 0.0,
    "pooling_type": 0,
    "logit_scale": 0.0,
    "residual_scale": 0.0,
    "embedding_scale": 0.0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
}
"""Values with which a setting changes nothing, in architectures that do not have it."""
_WITHOUT_EFFECT = ("context_length", "tensor_data_layout", "rope.scaling.finetuned")
_BIASES = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias", "use_qkv_bias": "blk.0.attn_q.bias"}
"""Fields that say whether there are biases, and a tensor that is there if so."""
_CAPPED_WINDOW = {"gemma2": 4096}
"""Windows of architectures whose files may leave them out."""
_LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Layers of the models that scale attention by another width than that of a head."""


def _size(least: int, most: int) -> Any:
    """An integer, or one for each layer; long lists are not read."""
    one = Annotated[int, Range(least, most)]
    return one | list[one] | None


_NUMBER = Annotated[float, Range(0, 1e15)]

_TYPES: dict[str, Any] = {
    "block_count": Annotated[int, Range(1, 10_000)],
    "context_length": Annotated[int, Range(1, 2**40)],
    "embedding_length": Annotated[int, Range(1, 2**24)],
    "feed_forward_length": _size(0, 2**26),
    **dict.fromkeys(("attention.head_count", "attention.head_count_kv"), _size(0, 65_536)),
    **dict.fromkeys(("attention.key_length", "attention.value_length", "rope.dimension_count"), _size(1, 2**24)),
    "vocab_size": Annotated[int, Range(1, 2**28)],
    **dict.fromkeys(("expert_count", "expert_used_count"), _size(0, 65_536)),
    **dict.fromkeys(("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"), _NUMBER),
    **dict.fromkeys(("rope.freq_base", "rope.freq_base_swa"), Annotated[float, Range(1e-6, 1e15)]),
    **dict.fromkeys(("rope.scaling.factor", "rope.scale_linear", "rope.scaling.attn_factor"), _NUMBER),
    "rope.scaling.type": str,
    "rope.scaling.original_context_length": Annotated[int, Range(0, 2**40)],
}
"""Types of the settings under the name of the architecture."""


def require_settings(file: GgufFile) -> None:
    """Check types and ranges of the settings of a file, before anything is built from them."""
    require_types(own_settings(file), _TYPES, file.name, hint=GGUF_HINT)


def apply_gguf_settings(config: PreTrainedConfig, file: GgufFile) -> None:
    """Set the fields of a configuration that transformers made of a file."""
    architecture = str(file.settings["general.architecture"])
    settings = {name: _uniform(value) for name, value in own_settings(file).items()}
    has = _field_names(config)
    _check_known(settings, config, file)
    for name, fields in _FIELDS.items():
        field = next((field for field in fields if field in has), None)
        value = settings.get(name)
        if field is None or value is None or isinstance(value, tuple):
            continue
        if value != _NEUTRAL.get(name):
            setattr(config, field, value)
        elif name.endswith("softcapping"):
            setattr(config, field, None)
    config.tie_word_embeddings = "output.weight" not in file.entries
    for field, tensor in _BIASES.items():
        if field in has:
            setattr(config, field, tensor in file.entries)
    if architecture == "falcon":
        _set_falcon(config, settings, file)
    _set_heads(config, settings, has, file)
    _set_windows(config, settings, has, architecture, file)
    if "query_pre_attn_scalar" in has:
        is_largest = config.num_hidden_layers == _LARGEST_GEMMA.get(architecture)
        width = config.hidden_size // config.num_attention_heads if is_largest else config.head_dim
        config.query_pre_attn_scalar = width
    read_rotary_settings(config, settings, file, has_positions="rope_parameters" in has)


def _uniform(value: Any) -> Any:
    """Return the number that a list has for each layer, or the list if layers differ."""
    return value[0] if isinstance(value, tuple) and len(set(value)) == 1 else value


def own_settings(file: GgufFile) -> dict[str, Any]:
    """Return the settings under the name of the architecture, without that name."""
    start = f"{file.settings.get('general.architecture')}."
    return {key.removeprefix(start): value for key, value in file.settings.items() if key.startswith(start)}


def require_all_read(file: GgufFile, read: Collection[str]) -> None:
    """Check that each tensor of a file is read."""
    unread = sorted(name for name in file.entries if name not in read and name not in FACTORS)
    if unread:
        architecture = str(file.settings.get("general.architecture"))
        message = f"{file.name} has tensors that are not part of the architecture {architecture}: {listed(unread, 4)}."
        raise ModelError(message, hint=GGUF_HINT, path=file.name, architecture=architecture, tensors=unread)


def _field_names(config: PreTrainedConfig) -> set[str]:
    """Names of the fields that a class of configurations has; an instance may hold others, which nothing reads."""
    plain = type(config)()
    return {*plain.to_dict(), *type(config).attribute_map}


def _check_known(settings: Mapping[str, Any], config: PreTrainedConfig, file: GgufFile) -> None:
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    by_transformers = {
        name
        for model_type in (config.model_type, config.model_type.removesuffix("_text"))
        for name in GGUF_CONFIG_MAPPING.get(model_type, {})
    }
    if settings.get("expert_feed_forward_length") != settings.get("feed_forward_length"):
        by_transformers.discard("expert_feed_forward_length")  # of MiniMax, it reads the other one alone
    has = _field_names(config)
    elsewhere = ("attention.value_length", "attention.sliding_window", "attention.head_count_kv", *_WITHOUT_EFFECT)
    for name, value in settings.items():
        is_field = any(field in has for field in _FIELDS.get(name, ()))
        if name in elsewhere or name.startswith("rope.") or value == _NEUTRAL.get(name):
            continue
        if isinstance(value, tuple) and name not in by_transformers:
            raise unsupported_setting(file, name, value)
        if name in ("attention.key_length", "feed_forward_length"):
            continue
        if not is_field and name not in by_transformers:
            raise unsupported_setting(file, name, value)


def _set_heads(config: PreTrainedConfig, settings: Mapping[str, Any], has: Iterable[str], file: GgufFile) -> None:
    """Check widths of heads, which default to an equal share of the width of the model."""
    heads = facts_of(config).num_attention_heads
    if heads is None:
        return
    num_kv = settings.get("attention.head_count_kv", heads)
    field = next((name for name in ("num_key_value_heads", "num_kv_heads") if name in has), None)
    if field is None:
        if num_kv != heads:
            raise unsupported_setting(file, "attention.head_count_kv", num_kv)
    elif not isinstance(num_kv, tuple):
        setattr(config, field, num_kv)
    share = config.hidden_size // heads
    width = settings.get("attention.key_length", share)
    if "head_dim" in has:
        config.head_dim = width
    elif width != share:
        raise unsupported_setting(file, "attention.key_length", width)
    if settings.get("attention.value_length", width) != width:
        raise unsupported_setting(file, "attention.value_length", settings["attention.value_length"])
    size = settings.get("feed_forward_length")
    if size is not None and size != 4 * config.hidden_size and not set(_FIELDS["feed_forward_length"]) & set(has):
        raise unsupported_setting(file, "feed_forward_length", size)


def _set_windows(
    config: PreTrainedConfig, settings: Mapping[str, Any], has: Collection[str], architecture: str, file: GgufFile
) -> None:
    window = settings.get("attention.sliding_window") or _CAPPED_WINDOW.get(architecture)
    if "sliding_window" not in has or "use_sliding_window" in has:
        if window:
            raise unsupported_setting(file, "attention.sliding_window", window)
        return
    if window is None and facts_of(config).layer_types:
        config.layer_types = ["full_attention"] * config.num_hidden_layers
    config.sliding_window = window


def _set_falcon(config: PreTrainedConfig, settings: Mapping[str, Any], file: GgufFile) -> None:
    """Check that queries, keys, and values of Falcon are in the order of its smaller models."""
    num_kv = settings.get("attention.head_count_kv", config.num_attention_heads)
    if num_kv != 1:
        raise unsupported_setting(file, "attention.head_count_kv", num_kv)
    config.multi_query, config.new_decoder_architecture, config.parallel_attn = True, False, True
