"""Keywords of Optimum Neuron's `from_pretrained`, `main_export` and `pipeline` that are no option of this package.

`translate` takes them out of a set of keywords: some change nothing here, which an INFO line reports; some have one
possible value; `neuron_config` stands for the options of a configuration.

    >>> from optimum_neuron.exporters.peer_options import translate
    >>> translate({"batch_size": 1, "low_cpu_mem_usage": True, "disable_fallback": True})
    {'batch_size': 1}
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

from ..base.foreign import plain_value
from ..errors import ConfigError, ModelError
from ..kinds import compile_options
from ..options.configuration import NEFF_FILE, CompileConfig
from ..options.option import EXPORT_HELP, SOURCE_OPTIONS, check_known, source_options
from ..options.peer_attributes import joined, report_without_effect
from ..sources.pipelines import ADDITION_GROUPS, ADDITION_OPTIONS, ADDITION_SYNONYMS
from ..weights import SCHEME_NAMES

logger = logging.getLogger(__name__)

WITHOUT_EFFECT = {
    "disable_fallback": "no operator runs on the host unless allow_host_ops names it",
    "disable_fast_relayout": "layouts are chosen by the real compiler only",
    "library_name": "the files of a folder say which library wrote it",
    "load_weights": "weights are memory-mapped",
    "low_cpu_mem_usage": "weights are memory-mapped",
    "model_save_dir": "save_pretrained() says where a model is saved",
    "patch_size": "the configuration of the checkpoint has the patch size",
    "vae_scale_factor": "the configuration of the autoencoder has it",
}
"""Why a keyword changes nothing."""

_SHARING = "prompts share what they begin with, unless allow_block_sharing=False of ContinuousBatchingConfig"
OF_BATCHING = {
    **dict.fromkeys(("enable_prefix_caching", "is_prefix_caching"), _SHARING),
    "enable_chunked_prefill": "prompts are read in chunks",
}
"""Keywords that are True with continuous batching, and have no effect without; and why."""

FIXED: dict[str, tuple[Any, str]] = {
    "calculate_kv_scales": (False, "nothing is calibrated: scales are found for each token, or in the checkpoint"),
    "max_num_batched_tokens": (None, "steps have their own graphs; prefill_chunk_size limits prompts between them"),
    **dict.fromkeys(("async_mode", "async_scheduling"), (False, "a step begins when the tokens before it are picked")),
    "file_name": (NEFF_FILE, "the program of a folder has one name"),
    "encoder_file_name": (NEFF_FILE, "encoder and decoder are in one file"),
    "decoder_file_name": (NEFF_FILE, "encoder and decoder are in one file"),
}
"""The only value that a keyword can have, None for no value, and why."""

OTHER_NAMES = {
    "dtype": "torch_dtype",
    **dict.fromkeys(("num_cores", "tp_degree"), "tensor_parallel_size"),
    "pp_degree": "pipeline_parallel_size",
    "context_encoding_buckets": "prefill_buckets",
    "token_generation_buckets": "decode_buckets",
    "sequence_parallel_enabled": "sequence_parallel",
    **dict.fromkeys(("max_num_seqs", "max_batch_size"), "batch_size"),
    **dict.fromkeys(("max_model_len", "n_positions", "seq_len"), "sequence_length"),
    **dict.fromkeys(("pa_num_blocks", "num_gpu_blocks_override"), "num_blocks"),
    "pa_block_size": "block_size",
    **dict.fromkeys(("is_block_kv_layout", "is_continuous_batching"), "continuous_batching"),
    "global_topk": "max_topk",
}
"""Names of options in transformers and diffusers, Optimum Neuron, NxD Inference, and vLLM."""

OF_DIFFUSION = (*ADDITION_OPTIONS, *ADDITION_SYNONYMS, *ADDITION_GROUPS)
"""Keywords of what is added to diffusion pipelines; other models have none of it."""

_DTYPES = ("dtype", "torch_dtype")
_SAMPLING_CONFIG = "on_device_sampling_config"

QUANTIZATION_OPTIONS = (
    *("quantization_config", "quantized", "quantization_dtype", "quantization_type"),
    *("activation_quantization_type", "kv_cache_quant", "kv_quant_config"),
)
"""Keywords that `translate_quantization` knows."""

PEER_OPTIONS = (
    *(*WITHOUT_EFFECT, *FIXED, *OF_BATCHING, *OF_DIFFUSION, *QUANTIZATION_OPTIONS, *OTHER_NAMES),
    *(_SAMPLING_CONFIG, "neuron_config"),
)
"""Keywords that `translate` knows."""

OF_GENERATION = ("num_beams", "prefill_chunk_size")
"""Keywords that `generate` has too: a pipeline passes them on to it, and not to the export."""


def translate(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords without those of Optimum Neuron; fields of `neuron_config` become keywords.

    Raises:
        ConfigError: a keyword has a value that is not supported; all such keywords are named.
        ModelError: keywords are of diffusion pipelines.
    """
    options = {name: _dtype_name(value) if name in _DTYPES else value for name, value in options.items()}
    translated = {name: value for name, value in options.items() if name not in PEER_OPTIONS}
    if isinstance(cache := translated.get("kv_cache_dtype"), str) and cache in CACHE_DTYPES:
        translated["kv_cache_dtype"] = CACHE_DTYPES[cache]
    values = {name: options[name] for name in PEER_OPTIONS if options.get(name) is not None}
    refuse_additions([name for name in OF_DIFFUSION if values.get(name)])
    report_without_effect(values, WITHOUT_EFFECT)
    wrong = {name: values[name] for name in FIXED if name in values and not _is_same(values[name], FIXED[name][0])}
    if wrong:
        raise ConfigError(
            "\n".join(f"{name}={value!r} is not supported: {FIXED[name][1]}." for name, value in wrong.items()),
            hint=f"Remove {', '.join(wrong)}.",
            options=wrong,
        )
    translated = joined(
        translated, ((other, OTHER_NAMES[other], values[other]) for other in OTHER_NAMES if other in values)
    )
    if (named := cache_dtype_of(values)) is not None:
        translated = joined(translated, [(named[0], "kv_cache_dtype", named[1])])
    sampling = _sampling_options(values.get(_SAMPLING_CONFIG))
    quantized = translate_quantization(values)
    if (scheme := quantized.get("quantization")) is not None:
        other = "quantized" if values.get("quantized") else "quantization_config"
        translated = joined(translated, [(other, "quantization", scheme)])
    result = _fields_of(values.get("neuron_config")) | sampling | quantized | translated
    batches = result.get("continuous_batching")
    if useless := {name: values[name] for name in OF_BATCHING if name in values and not (batches and values[name])}:
        rows = (
            f"{name}={value!r}: with continuous_batching=True, {OF_BATCHING[name]}" for name, value in useless.items()
        )
        message = f"Without effect: {'; '.join(rows)}."
        raise ConfigError(message, hint=f"Remove {', '.join(useless)}.", options=useless)
    return result


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Translate keywords; return those that find a model, and those that decide its compile."""
    known = translate(options)
    check_known(known, [*compile_options(), *SOURCE_OPTIONS], what="the export", listed=EXPORT_HELP)
    where = source_options(known)
    return where, {name: value for name, value in known.items() if name not in where}


def _dtype_name(value: object) -> Any:
    """A dtype as text, which torch's dtypes have two of."""
    return value if value is None else str(value).removeprefix("torch.")


def _sampling_options(config: object) -> dict[str, Any]:
    """Return the options for NxD Inference's configuration of sampling on the device, a mapping or an object."""
    if config is None:
        return {}
    fields = dict(config) if isinstance(config, Mapping) else vars(config)
    settings = sorted(fields.keys() - {"global_topk"})
    if settings:
        logger.info("%s: %s change nothing: they are settings of a request.", _SAMPLING_CONFIG, ", ".join(settings))
    number = fields.get("global_topk")
    return {"on_device_sampling": True} | ({} if number is None else {"max_topk": number})


def refuse_additions(names: Collection[str]) -> None:
    """Reject options of diffusion pipelines for another model."""
    if names:
        message = f"{', '.join(names)} are options of diffusion pipelines, and this is another model."
        hint = "To merge a LoRA adapter into a transformers model, pass adapter (--adapter)."
        raise ModelError(message, hint=hint, options=list(names))


def _is_same(value: object, expected: object) -> bool:
    return value == expected and isinstance(value, bool) == isinstance(expected, bool)


def _fields_of(config: object) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, CompileConfig):
        given, hint = type(config).__name__, "Pass a NeuronConfig, for example the result of `get_neuron_config`."
        raise ConfigError(f"neuron_config is a {given}.", hint=hint, type=given)
    names = compile_options()
    return {name: value for name, value in config.to_dict().items() if name in names and value is not None}


_QUANTO = {"int8": "int8", "float8": "fp8", "int4": "int4-g128"}
"""Weights of `QuantoConfig`; its groups have 128 inputs."""
_TORCHAO = {
    "Int8WeightOnlyConfig": "int8",
    "Int8DynamicActivationInt8WeightConfig": "int8-dynamic",
    "Float8WeightOnlyConfig": "fp8",
    "Int4WeightOnlyConfig": "int4",
}
"""Classes of torchao that need no calibration."""
_NXDI_DTYPES = {"int8": "int8", "f8e4m3": "fp8"}
_NXDI_TYPES = {"per_channel_symmetric": "", "blockwise_symmetric": "-g128"}
_NXDI_ACTIVATIONS = {"None": "", "dynamic": "-dynamic"}

CACHE_DTYPES = {"fp8_e4m3": "fp8", "int8_per_token_head": "int8"}
"""vLLM's values of `kv_cache_dtype` that have another name here."""


_NXDI_CACHE_DTYPES = ("float8_e4m3fn", "f8e4m3")
_NXDI_CACHE_FIELDS = ("quant_dtype", "direct_cast", "k_quant_method", "v_quant_method")


def cache_dtype_of(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return which keyword of NxD Inference among `options` quantizes the cache, and `kv_cache_dtype` for it.

    `kv_quant_config` is a `KVQuantizationConfig` or a mapping. It casts to fp8, or divides by scales of the checkpoint.

    >>> cache_dtype_of({"kv_quant_config": {"quant_dtype": "float8_e4m3fn", "direct_cast": True}})
    ('kv_quant_config', 'fp8')
    """
    config = options.get("kv_quant_config")
    if config is None:
        return ("kv_cache_quant", "fp8") if options.get("kv_cache_quant") else None
    given = config if isinstance(config, Mapping) else vars(config)
    fields = {name: plain_value(value) for name, value in given.items() if value is not None}
    is_cast = bool(fields.get("direct_cast"))
    methods = {name: fields.get(name, "per_tensor_symmetric") for name in _NXDI_CACHE_FIELDS[2:]}
    wrong = {name: value for name, value in fields.items() if name not in _NXDI_CACHE_FIELDS}
    if (dtype := str(fields.get("quant_dtype")).removeprefix("torch.")) not in _NXDI_CACHE_DTYPES:
        wrong["quant_dtype"] = dtype
    if not is_cast:
        wrong |= {name: value for name, value in methods.items() if value != "per_tensor_symmetric"}
    if wrong:
        listed = ", ".join(f"{name}={value!r}" for name, value in wrong.items())
        message = f"kv_quant_config with {listed} is not supported."
        hint = "Pass quant_dtype=torch.float8_e4m3fn with direct_cast=True, or with per_tensor_symmetric and the "
        hint += "scales of the checkpoint."
        raise ConfigError(message, hint=hint, option="kv_quant_config", fields=wrong)
    return "kv_quant_config", "fp8" if is_cast else "fp8-static"


def translate_quantization(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return `quantization` and `modules_to_not_convert` for the keywords of other libraries among `options`."""
    config = options.get("quantization_config")
    if config is not None:
        return _of_transformers(config)
    if options.get("quantized"):
        return {"quantization": _of_nxdi(options)}
    details = [name for name in QUANTIZATION_OPTIONS[2:5] if name in options]
    if details:
        hint = "Pass quantized=True too, or quantization alone."
        raise ConfigError(f"{', '.join(details)} has no effect without quantized=True.", hint=hint, options=details)
    return {}


def _of_transformers(config: Any) -> dict[str, Any]:
    name = type(config).__name__
    scheme = None
    if name == "QuantoConfig" and config.activations is None:
        scheme = _QUANTO.get(config.weights)
    elif name == "TorchAoConfig":
        quantizer = config.quant_type
        scheme = _TORCHAO.get(type(quantizer).__name__)
        if scheme == "int4":
            scheme = f"int4-g{quantizer.group_size}"
    if scheme is None:
        message = f"quantization_config={name} is not supported: nothing is calibrated."
        hint = 'Pass QuantoConfig(weights="int8") or a weight-only TorchAoConfig, or quantization="int8".'
        raise ConfigError(message, hint=hint, option="quantization_config", type=name, choices=list(SCHEME_NAMES))
    skipped = config.modules_to_not_convert
    return {"quantization": scheme} | ({"modules_to_not_convert": tuple(skipped)} if skipped else {})


def _of_nxdi(options: Mapping[str, Any]) -> str:
    dtype = str(options.get("quantization_dtype") or "int8")
    kind = str(options.get("quantization_type") or "per_channel_symmetric")
    activations = str(options.get("activation_quantization_type"))
    size, inputs = _NXDI_TYPES.get(kind), _NXDI_ACTIVATIONS.get(activations)
    if dtype not in _NXDI_DTYPES or size is None or inputs is None or (size and (dtype == "int8" or inputs)):
        message = f"quantization_dtype={dtype!r} with quantization_type={kind!r} and "
        message += f"activation_quantization_type={activations!r} is not supported."
        hint = "Pass int8 or f8e4m3 with per_channel_symmetric, where activations may be dynamic, or f8e4m3 with "
        hint += "blockwise_symmetric."
        raise ConfigError(message, hint=hint, option="quantization_type", value=kind)
    return _NXDI_DTYPES[dtype] + size + inputs
