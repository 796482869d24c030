"""Translate options of `transformers_neuronx` to those of an export here.

Each option has an effect, has none on a simulated core (one INFO line names those that were passed), or is refused with
the alternative. It does not know models: it gets their configuration.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PretrainedConfig

from ..errors import ConfigError, invalid_choice
from ..hardware import instance_for_cores
from .config import ContinuousBatchingConfig, KVCacheQuantizationConfig, NeuronConfig, QuantizationConfig

logger = logging.getLogger(__name__)

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""Values of `amp`."""
_KV_DTYPES = {"s8": "int8", "f8e4m3fn": "fp8"}
_ATTENTION = {"bloom": "self_attention", "gpt2": "attn", "gpt_neox": "attention", "gptj": "attn"}
"""Names of the attention of a layer in checkpoints; others: self_attn."""

WITHOUT_EFFECT = (
    *("attention_layout", "collectives_layout", "cache_layout", "group_query_attention"),
    *("sequence_parallel_norm_threshold", "bf16_rms_norm", "on_device_embedding", "all_reduce_dtype", "fuse_qkv"),
    *("qkv_tiling", "weight_tiling", "mlp_in_weight_tiling_permute_order", "mlp_out_weight_tiling_permute_order"),
    *("shard_over_sequence", "attn_output_transposed", "fused_rmsnorm_qkv", "fused_rmsnorm_mlp"),
    *("mlp_out_weight_transpose", "fuse_mlp", "compilation_worker_count", "duplicate_q_weight_sos"),
    "has_pre_attention_norm",
)
"""Fields of `NeuronConfig` about the layout of memory and of kernels: results do not depend on them, and the compiler
here chooses for itself. Whether an EAGLE draft has a norm before attention follows from its tensors."""

KEYWORDS = {
    **dict.fromkeys(("sequence_length", "decode_buckets"), "n_positions"),
    "prefill_buckets": "context_length_estimate",
    "prefill_chunk_size": "window_context_length",
    "tensor_parallel_size": "tp_degree",
    "torch_dtype": "amp",
    "quantization": "quant",
    "modules_to_not_convert": "no_quantize_list",
    "kv_cache_dtype": "kv_cache_quant",
    "sequence_parallel": "sequence_parallel_norm",
    "extend_length": "speculation_length + 1",
    "instance_type": "OPTIMUM_NEURON_INSTANCE",
}
"""Options of an export, and what these classes call them, for messages."""

_REFUSED = {
    "sparse_attn": "Use a checkpoint whose own layers have a sliding window; they are compiled so.",
    "output_all_logits": "Call speculative_forward, or NeuronModelForCausalLM with logits_to_keep=0.",
}
"""Fields that change results in a way that these classes do not have, with the alternative."""


def without_effect(config: NeuronConfig) -> list[str]:
    """Return the options that were changed and do nothing; raise an error for those that are refused."""
    defaults = NeuronConfig()
    changed = [
        field.name
        for field in dataclasses.fields(config)
        if getattr(config, field.name) != getattr(defaults, field.name)
    ]
    for name in changed:
        if name in _REFUSED:
            value = getattr(config, name)
            raise ConfigError(
                f"NeuronConfig({name}={value!r}) is not supported.", hint=_REFUSED[name], option=name, value=str(value)
            )
    return [name for name in changed if name in WITHOUT_EFFECT]


def check_batching(batching: ContinuousBatchingConfig | None, batch_size: int, length: int) -> None:
    """Check that the sequences of continuous batching are those of the model."""
    if batching is None:
        return
    if batching.optimized_paged_attention or batching.enable_chunked_prefill:
        raise ConfigError(
            "ContinuousBatchingConfig(optimized_paged_attention=True) is not supported: a sequence has its own slots.",
            hint="Remove it, or use NeuronModelForCausalLM(continuous_batching=True).generate_batch.",
            option="optimized_paged_attention",
        )
    limits = {"max_num_seqs": (batching.max_num_seqs, batch_size), "max_model_len": (batching.max_model_len, length)}
    for name, (value, expected) in limits.items():
        if value not in (None, expected):
            other = "batch_size" if name == "max_num_seqs" else "n_positions"
            raise ConfigError(
                f"ContinuousBatchingConfig({name}={value}) contradicts {other}={expected}.",
                hint=f"Pass {expected}.",
                option=name,
                value=value,
                expected=expected,
            )


def export_options(
    *,
    amp: str | None,
    batch_size: int | Sequence[int],
    n_positions: int | Sequence[int],
    context_length_estimate: int | Sequence[int] | None,
    tp_degree: int,
    neuron_config: NeuronConfig,
    config: PretrainedConfig,
) -> dict[str, Any]:
    """Return the keywords of `NeuronModelForCausalLM.from_pretrained`."""
    if unused := without_effect(neuron_config):
        logger.info("Without effect on a simulated core: %s.", ", ".join(unused))
    length = n_positions if isinstance(n_positions, int) else max(n_positions)
    dtype, _, weights = (amp or "f32").partition("-")
    if dtype not in DTYPES:
        raise invalid_choice("amp", amp, tuple(DTYPES))
    options: dict[str, Any] = {
        "batch_size": batch_size if isinstance(batch_size, int) else max(batch_size),
        "sequence_length": length,
        "torch_dtype": DTYPES[dtype],
        "tensor_parallel_size": tp_degree,
        "sequence_parallel": neuron_config.sequence_parallel_norm and tp_degree > 1,
    }
    check_batching(neuron_config.continuous_batching, options["batch_size"], length)
    if not isinstance(n_positions, int):
        options["decode_buckets"] = tuple(sorted(set(n_positions)))
    if context_length_estimate:
        options["prefill_buckets"] = context_sizes(context_length_estimate, length)
    if weights and not weights.startswith("u8"):
        raise invalid_choice("amp", amp, tuple(DTYPES))
    quant = neuron_config.quant or (QuantizationConfig() if weights else None)
    instance = instance_for_cores(tp_degree)
    logger.info("instance_type: %s", instance)
    return {
        **{name: value for name, value in options.items() if value is not False},
        "instance_type": instance.value,
        **_weights(quant, config.model_type),
        **_cache(neuron_config.kv_cache_quant),
        **(_of_eagle(config) if neuron_config.is_eagle_target else {}),
    }


def _of_eagle(config: PretrainedConfig) -> dict[str, Any]:
    """Options of the target of an EAGLE draft: checks of several tokens, and whole hidden states of the last layer."""
    num_layers = config.get_text_config(decoder=True).num_hidden_layers
    return {"speculation": True, "extend_length": 8, "hidden_state_layers": (num_layers,), "sequence_parallel": False}


def context_sizes(estimate: int | Sequence[int], length: int) -> tuple[int, ...]:
    """Return the buckets of prompts.

    >>> context_sizes([256, 64], 512)
    (64, 256)
    """
    sizes = (estimate,) if isinstance(estimate, int) else tuple(sorted(set(estimate)))
    if max(sizes) > length:
        raise ConfigError(
            f"context_length_estimate={max(sizes)} is more than n_positions={length}.",
            hint=f"Pass at most {length}.",
            option="context_length_estimate",
            value=max(sizes),
            n_positions=length,
        )
    return sizes


def _weights(quant: QuantizationConfig | None, model_type: str) -> Mapping[str, Any]:
    """Quantization of weights."""
    if quant is None:
        return {}
    skipped = list(quant.no_quantize_list)
    if not quant.quantize_attn:
        skipped.append(_ATTENTION.get(model_type, "self_attn"))
    options: dict[str, Any] = {"quantization": "int8" if quant.quant_dtype == "s8" else "fp8"}
    return options | ({"modules_to_not_convert": tuple(skipped)} if skipped else {})


def _cache(quant: KVCacheQuantizationConfig | None) -> Mapping[str, Any]:
    """Quantization of keys and values."""
    if quant is None:
        return {}
    if quant.quant_dtype not in _KV_DTYPES:
        raise ConfigError(
            f"KVCacheQuantizationConfig(quant_dtype={quant.quant_dtype!r}) is not supported: a cache has "
            "the dtype of amp, or 8 bits.",
            hint=f"Use {' or '.join(_KV_DTYPES)}, or amp={quant.quant_dtype!r} without kv_cache_quant.",
            option="kv_cache_quant",
            value=quant.quant_dtype,
        )
    return {"kv_cache_dtype": _KV_DTYPES[quant.quant_dtype]}
