"""Checks of keywords of NxD Inference that contradict each other, before a checkpoint is read."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import AssertedConfigError, ConfigError, invalid_choice
from ..options.sizes import is_count
from ..options.value_types import check_types
from .keywords import TYPES, Keywords

_BUCKETS = ("buckets", "context_encoding_buckets", "prefix_buckets", "token_generation_buckets")
_CHOICES: dict[str, tuple[str, ...]] = {
    "padding_side": ("right", "left"),
    "cast_type": ("config", "as-declared"),
    "logical_nc_config": ("1", "2"),
    "quantization_type": (
        *("per_tensor_symmetric", "per_channel_symmetric", "blockwise_symmetric"),
        "expert_wise_per_channel_symmetric",
    ),
    "ep_dispatch_cc_option": ("AR_AG", "RS_AG", "AG_AR"),
}


def check_values(given: Mapping[str, Any]) -> None:
    """Check each keyword that was passed, before others are computed from them; None is as if it was not."""
    check_types(given, TYPES)
    for name, value in given.items():
        if value is None:
            continue
        if name in _BUCKETS and not _are_buckets(value):
            message = f"{name}={value!r} is not a list of numbers of tokens."
            raise ConfigError(message, hint="Pass for example [128, 512].", option=name, value=value)
        plain = value.value if isinstance(value, enum.Enum) else value
        if name in _CHOICES and str(plain) not in _CHOICES[name]:
            raise invalid_choice(name, plain, _CHOICES[name])


def _are_buckets(value: object) -> bool:
    """Whether a value is a list of numbers, or of pairs of rows or new tokens and columns."""
    if not isinstance(value, (list, tuple)) or not value:
        return False
    pairs = [one if isinstance(one, (list, tuple)) else (1, one) for one in value]
    return all(len(pair) == 2 and is_count(pair[0]) and (pair[1] == 0 or is_count(pair[1])) for pair in pairs)  # noqa: PLR2004


def check(config: Keywords) -> None:
    """Check a complete `NeuronConfig`."""
    for error in (*_sizes(config), *_degrees(config), *_features(config)):
        raise error


def _sizes(config: Keywords) -> Iterator[ConfigError]:
    if config.attention_dtype not in (None, config.torch_dtype) and config.cast_type != "as-declared":
        yield AssertedConfigError(
            f"attention_dtype={config.attention_dtype} differs from torch_dtype={config.torch_dtype}.",
            hint='Pass cast_type="as-declared".',
            option="attention_dtype",
        )
    limits = {"max_context_length": config.max_length}
    values = {"max_context_length": config.max_context_length}
    if config.max_new_tokens and config.max_new_tokens != config.seq_len - config.max_context_length:  # not computed
        values["max_new_tokens"], limits["max_new_tokens"] = config.max_new_tokens, config.max_length
    if config.windowed_context_encoding_size is not None:
        name = "windowed_context_encoding_size"
        values[name], limits[name] = config.windowed_context_encoding_size, config.max_context_length
    for name, limit in (("context_encoding_buckets", "max_context_length"), ("token_generation_buckets", "max_length")):
        if buckets := getattr(config, name):
            values[name], limits[name] = max(_lengths(buckets)), getattr(config, limit)
    for name, value in values.items():
        if value > limits[name]:
            yield AssertedConfigError(
                f"{name}={value} is more than {limits[name]}, the tokens that there is room for.",
                hint=f"Pass at most {limits[name]}, or a larger seq_len.",
                option=name,
                value=value,
                limit=limits[name],
            )
    if config.speculation_length >= config.max_length:
        yield ConfigError(
            f"speculation_length={config.speculation_length} leaves no room in the {config.max_length} tokens.",
            hint="Pass a smaller number, or a larger seq_len.",
            option="speculation_length",
            value=config.speculation_length,
        )
    batches = config.token_generation_batches
    if batches == []:
        message = "token_generation_batches is empty."
        yield ConfigError(message, hint="Pass numbers of rows, or leave it out.", option="token_generation_batches")
    if batches and max(batches) > config.tkg_batch_size:
        message = f"token_generation_batches={batches} is more than tkg_batch_size={config.tkg_batch_size}."
        yield AssertedConfigError(message, hint="Pass smaller batches.", option="token_generation_batches")


def _lengths(buckets: list[Any]) -> list[int]:
    return [bucket[-1] if isinstance(bucket, (list, tuple)) else bucket for bucket in buckets]


def _degrees(config: Keywords) -> Iterator[ConfigError]:
    def wrong(message: str, option: str) -> ConfigError:
        return ConfigError(message, hint="Change one of them.", option=option, value=getattr(config, option))

    tp, cp, dp = config.tp_degree, config.cp_degree, config.attention_dp_degree
    ranks = tp * config.pp_degree * config.ep_degree
    if config.world_size % ranks:
        yield wrong(f"world_size={config.world_size} is no multiple of the {ranks} ranks of the degrees.", "world_size")
    if tp % cp:
        yield wrong(f"tp_degree={tp} is no multiple of cp_degree={cp}.", "cp_degree")
    if tp % dp:
        yield wrong(f"tp_degree={tp} is no multiple of attention_dp_degree={dp}.", "attention_dp_degree")
    if config.tkg_batch_size % dp:
        message = f"tkg_batch_size={config.tkg_batch_size} is no multiple of attention_dp_degree={dp}."
        yield wrong(message, "attention_dp_degree")
    if cp > 1 and dp > 1 and cp % dp:
        yield wrong(f"cp_degree={cp} is no multiple of attention_dp_degree={dp}.", "attention_dp_degree")
    if dp > 1 and not config.is_continuous_batching:
        yield wrong(f"attention_dp_degree={dp} needs is_continuous_batching=True.", "attention_dp_degree")
    if config.mlp_cp_degree > 1 and not config.sequence_parallel_enabled:
        yield wrong(f"mlp_cp_degree={config.mlp_cp_degree} needs sequence_parallel_enabled=True.", "mlp_cp_degree")
    if config.strided_context_parallel_kernel_enabled and cp == 1:
        yield wrong(f"cp_degree={cp}: strided_context_parallel_kernel_enabled needs more.", "cp_degree")


_BESIDE_BATCHES = (
    *("speculation_length", "enable_fused_speculation", "enable_eagle_speculation", "is_medusa", "enable_token_tree"),
    *("is_chunked_prefill", "is_prefix_caching", "is_block_kv_layout"),
)
"""Options that `token_generation_batches` does not go with."""


def _features(config: Keywords) -> Iterator[ConfigError]:
    if config.quantized and config.quantized_checkpoints_path is None:
        message = "quantized=True needs quantized_checkpoints_path."
        yield AssertedConfigError(message, hint="Pass a folder.", option="quantized_checkpoints_path")
    if config.is_medusa and config.async_mode:
        message = "is_medusa=True does not go with async_mode=True."
        yield ConfigError(message, hint="Remove async_mode.", options=["is_medusa", "async_mode"])
    if config.is_chunked_prefill and not config.is_block_kv_layout:
        message = "chunked_prefill_config needs is_block_kv_layout=True."
        yield AssertedConfigError(message, hint="Pass both.", option="is_block_kv_layout")
    if config.tensor_capture_config is not None and config.on_device_sampling_config is None:
        message = "tensor_capture_config needs on_device_sampling_config."
        yield ConfigError(message, hint="Pass OnDeviceSamplingConfig().", option="on_device_sampling_config")
    others = [name for name in _BESIDE_BATCHES if getattr(config, name)]
    if config.token_generation_batches is not None and others:
        message = f"token_generation_batches does not go with {', '.join(others)}."
        yield ConfigError(message, hint=f"Remove {others[0]}, or the batches.", options=others)
