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

from ..errors import ConfigError, ModelError
from ..kinds import compile_options
from ..options.configuration import NEFF_FILE, CompileConfig
from ..options.peer_names import joined, report_without_effect
from ..sources.pipelines import ADDITION_GROUPS, ADDITION_OPTIONS, ADDITION_SYNONYMS
from .quantization_options import CACHE_DTYPES, QUANTIZATION_OPTIONS, cache_dtype_of, translate_quantization

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
    result = _fields_of(values.get("neuron_config")) | sampling | translate_quantization(values) | translated
    batches = result.get("continuous_batching")
    if useless := {name: values[name] for name in OF_BATCHING if name in values and not (batches and values[name])}:
        rows = (
            f"{name}={value!r}: with continuous_batching=True, {OF_BATCHING[name]}" for name, value in useless.items()
        )
        message = f"Without effect: {'; '.join(rows)}."
        raise ConfigError(message, hint=f"Remove {', '.join(useless)}.", options=useless)
    return result


def _dtype_name(value: Any) -> Any:
    """A dtype as text, which torch's dtypes have two of."""
    return value if value is None else str(value).removeprefix("torch.")


def _sampling_options(config: Any) -> dict[str, Any]:
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


def _is_same(value: Any, expected: Any) -> bool:
    return value == expected and isinstance(value, bool) == isinstance(expected, bool)


def _fields_of(config: Any) -> dict[str, Any]:
    if config is None:
        return {}
    if not isinstance(config, CompileConfig):
        given, hint = type(config).__name__, "Pass a NeuronConfig, for example the result of `get_neuron_config`."
        raise ConfigError(f"neuron_config is a {given}.", hint=hint, type=given)
    names = compile_options()
    return {name: value for name, value in config.to_dict().items() if name in names and value is not None}
