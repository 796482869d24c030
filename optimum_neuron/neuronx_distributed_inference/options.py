"""Translate a `NeuronConfig` of NxD Inference to the options of an export here.

Each keyword has an effect, has none on a simulated core (one INFO line names those that were passed), or is refused
with the alternative. It does not know models.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, invalid_choice
from ..hardware import TARGETS, instance_for_cores
from ..options.sizes import sizes_up_to
from ..options.spelling import spelled
from .autobucketing import generate_buckets_for_cte, generate_buckets_for_tkg
from .config import NeuronConfig, computed
from .keywords import DEFAULTS, DERIVED, LISTS, NAMES, OF_EXPERTS

if TYPE_CHECKING:
    from .inference_config import InferenceConfig

logger = logging.getLogger(__name__)

FAMILIES = ("inf2", "trn1", "trn2", "trn3")
"""Families that NxD Inference runs on, the smallest first."""

EFFECTIVE = frozenset(
    (
        *("batch_size", "ctx_batch_size", "tkg_batch_size", "max_batch_size", "seq_len", "max_length"),
        *("max_context_length", "torch_dtype", "overrides_torch_dtype", "tp_degree", "pp_degree"),
        *("enable_bucketing", "context_encoding_buckets", "token_generation_buckets", "on_device_sampling_config"),
        *("sequence_parallel_enabled", "quantized", "quantization_dtype", "modules_to_not_convert", "kv_cache_quant"),
        *("quantized_checkpoints_path", "quantization_type"),
        *("speculation_length", "enable_fused_speculation", "enable_eagle_speculation", "lora_config", "on_cpu"),
        *("is_eagle3",),
        *("output_logits", "target", "allow_input_truncation", "windowed_context_encoding_size"),
    )
)
"""Keywords that change what is compiled, or what a call returns."""

REFUSED: Mapping[str, str] = {
    **dict.fromkeys(
        ("is_block_kv_layout", "is_prefix_caching", "chunked_prefill_config"),
        "Use NeuronModelForCausalLM(continuous_batching=True).generate_batch, or `neuron serve`: they share prefixes "
        "and read prompts in chunks.",
    ),
    **dict.fromkeys(
        ("is_medusa", "medusa_speculation_length", "num_medusa_heads", "medusa_tree"),
        "Pass MedusaHeads as assistant_model of NeuronModelForCausalLM.generate.",
    ),
    "token_tree_config": "Use speculation_length: candidates here are one sequence.",
    "is_eagle_draft": "Pass enable_eagle_speculation=True with fused_spec_config to the target.",
    "is_mxfp4_compute": "Use a checkpoint in mxfp4: its experts are compiled so.",
    "activation_quantization_type": 'Use NeuronModelForCausalLM with quantization="int8-dynamic".',
    **dict.fromkeys(
        ("tensor_capture_config", "tensor_replacement_config"),
        "Run the transformers model on the CPU for intermediate tensors.",
    ),
    "kv_quant_config": "Pass kv_cache_quant=True: the cache is stored in fp8.",
}
"""Keywords that ask for something that these classes do not have, with the alternative."""

WITHOUT_EFFECT = frozenset((*NAMES, *OF_EXPERTS)) - EFFECTIVE - frozenset(REFUSED)
"""Keywords about kernels, layouts, and how work is divided: results do not depend on them, and the compiler here
chooses for itself."""

KEYWORDS = {
    "sequence_length": "seq_len",
    "tensor_parallel_size": "tp_degree",
    "pipeline_parallel_size": "pp_degree",
    "prefill_buckets": "context_encoding_buckets",
    "decode_buckets": "token_generation_buckets",
    "prefill_chunk_size": "windowed_context_encoding_size",
    "on_device_sampling": "on_device_sampling_config",
    "max_topk": "global_topk",
    "quantization": "quantization_dtype",
    "kv_cache_dtype": "kv_cache_quant",
    "sequence_parallel": "sequence_parallel_enabled",
    "lora_target_modules": "target_modules",
    "extend_length": "speculation_length + 1",
    "instance_type": "OPTIMUM_NEURON_INSTANCE",
}
"""Options of an export, and what NxD Inference calls them, for messages."""

_QUANTIZED = {"int8": "int8", "f8e4m3": "fp8"}
_DTYPES = ("float32", "float16", "bfloat16")


def changed(config: NeuronConfig) -> list[str]:
    """Return the keywords that differ from what they are by themselves."""
    lists: dict[str, list[Any]] = dict.fromkeys(LISTS, [])
    own = {**DEFAULTS, **OF_EXPERTS, **lists, **{name: getattr(config, other) for name, other in DERIVED.items()}}
    own |= computed(config)
    return [name for name, value in own.items() if hasattr(config, name) and getattr(config, name) != value]


def without_effect(config: NeuronConfig) -> list[str]:
    """Return the keywords that were changed and do nothing; raise an error for those that are refused."""
    names = changed(config)
    for name in names:
        if name in REFUSED:
            value = getattr(config, name)
            message = f"NeuronConfig({name}={value!r}) is not supported."
            raise ConfigError(message, hint=REFUSED[name], option=name, value=str(value))
    return [name for name in names if name in WITHOUT_EFFECT]


def export_options(config: InferenceConfig) -> dict[str, Any]:
    """Return the keywords of `NeuronModelForCausalLM.from_pretrained` for an `InferenceConfig`."""
    neuron = config.neuron_config
    if unused := without_effect(neuron):
        logger.info("Without effect on a simulated core: %s.", ", ".join(unused))
    dtype = str(neuron.torch_dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise invalid_choice("torch_dtype", dtype, _DTYPES)
    options: dict[str, Any] = {
        "batch_size": num_rows(neuron),
        "sequence_length": neuron.max_length,
        "torch_dtype": dtype,
        "tensor_parallel_size": neuron.tp_degree,
        "pipeline_parallel_size": neuron.pp_degree,
        "prefill_buckets": _tokens(generate_buckets_for_cte(config), neuron.max_context_length),
        "decode_buckets": _tokens(generate_buckets_for_tkg(config), neuron.max_length),
        "instance_type": _instance(neuron),
        **_features(neuron),
    }
    if (window := neuron.windowed_context_encoding_size) is not None:
        options |= {"prefill_chunk_size": window, "prefill_buckets": sizes_up_to(options["prefill_buckets"], window)}
    if neuron.speculation_length or neuron.enable_eagle_speculation:
        options |= {"speculation": True, "extend_length": (neuron.speculation_length or _CANDIDATES) + 1}
    return options


_CANDIDATES = 7
"""Tokens of a check if `speculation_length` names none."""


def num_rows(neuron: NeuronConfig) -> int:
    """Return the rows of the compiled batch: the most that any part asks for."""
    return max(neuron.batch_size, neuron.tkg_batch_size, neuron.ctx_batch_size, neuron.max_batch_size)


def _tokens(buckets: list[Any], longest: int) -> tuple[int, ...]:
    """Numbers of tokens, of buckets that may have rows too; the longest is always there."""
    return tuple(sorted({*(bucket[-1] if isinstance(bucket, list) else bucket for bucket in buckets), longest}))


def _instance(neuron: NeuronConfig) -> str:
    """The instance for the cores, of the target if one is named."""
    if neuron.target is not None and neuron.target not in TARGETS:
        raise invalid_choice("target", neuron.target, tuple(TARGETS))
    families = FAMILIES if neuron.target is None else (neuron.target,)
    cores = neuron.tp_degree * neuron.pp_degree
    with spelled({"tensor_parallel_size": "pp_degree * tp_degree"} if neuron.pp_degree > 1 else {}):
        choice = instance_for_cores(cores, families=families)
    logger.info("instance_type: %s", choice)
    return choice.value


def _features(neuron: NeuronConfig) -> dict[str, Any]:
    """Options of sampling, sequence parallelism, quantization, and adapters."""
    options: dict[str, Any] = {}
    if (sampling := neuron.on_device_sampling_config) is not None:
        options["on_device_sampling"] = True
        if sampling.global_topk > 0:
            options["max_topk"] = sampling.global_topk
    if neuron.sequence_parallel_enabled and neuron.tp_degree > 1:
        options["sequence_parallel"] = True
    if neuron.quantized:
        if neuron.quantization_dtype not in _QUANTIZED:
            raise invalid_choice("quantization_dtype", neuron.quantization_dtype, tuple(_QUANTIZED))
        options["quantization"] = _QUANTIZED[neuron.quantization_dtype]
        if neuron.modules_to_not_convert:
            options["modules_to_not_convert"] = tuple(neuron.modules_to_not_convert)
    if neuron.kv_cache_quant:
        options["kv_cache_dtype"] = "fp8"
    if (lora := neuron.lora_config) is not None:
        options |= {"max_loras": lora.max_loras, "max_lora_rank": lora.max_lora_rank}
        if lora.target_modules:
            options["lora_target_modules"] = tuple(lora.target_modules)
    return options
