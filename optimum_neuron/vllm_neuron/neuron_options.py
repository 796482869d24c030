"""The Neuron part of vLLM's configuration, in the forms of its three generations, as options of an export here.

| form | keywords |
| --- | --- |
| `override_neuron_config={...}` | NxD Inference's, or those of transformers_neuronx |
| `additional_config={"override_neuron_config": {...}}` | NxD Inference's |
| `additional_config={"neuron_config": {...}}` | those of the plugin for Trainium 2 and 3 |

Each keyword has an effect, is refused, or is among those without effect, which one INFO line lists.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import AssertedConfigError, ConfigError, invalid_choice
from ..neuronx_distributed_inference import NAMES, OF_EXPERTS, LoraServingConfig, check_values, to_torch_dtype
from ..options.option import check_known
from ..options.peer_attributes import joined
from ..options.sizes import is_rising
from ..options.value_types import COUNT, check_types
from ..transformers_neuronx import NeuronConfig

if TYPE_CHECKING:
    from .engine_args import EngineArgs

logger = logging.getLogger(__name__)

_NAMES = {
    **dict.fromkeys(("batch_size", "max_batch_size", "tkg_batch_size"), "batch_size"),
    **dict.fromkeys(("seq_len", "max_length", "n_positions"), "sequence_length"),
    "tp_degree": "tensor_parallel_size",
    "pp_degree": "pipeline_parallel_size",
    "context_encoding_buckets": "prefill_buckets",
    "token_generation_buckets": "decode_buckets",
    "pa_block_size": "block_size",
    "torch_dtype": "torch_dtype",
    "modules_to_not_convert": "modules_to_not_convert",
}
"""Keywords that are an option here."""
_PASSED = (
    *("quantized", "quantization_dtype", "quantization_type", "activation_quantization_type", "kv_quant_config"),
    *("on_device_sampling_config",),
)
"""Keywords that the export translates itself."""
OPTIONS_OF_KEYS = {
    **_NAMES,
    "pa_num_blocks": "num_blocks",
    "quantization_dtype": "quantization",
    "speculation_length": "extend_length",
    "sequence_parallel_enabled": "sequence_parallel",
    "kv_cache_quant": "kv_cache_dtype",
    "quant": "quantization",
}
"""Keywords of NxD Inference and transformers_neuronx, and the option that each is, for messages."""
OPTIONS_OF_PLUGIN = {"num_batched_tokens_buckets": "prefill_buckets", "decode_context_length_buckets": "decode_buckets"}
"""The same of the plugin for Trainium 2 and 3."""
_OF_PICTURES = ("vision_neuron_config", "mm_language_model_only")
_REFUSED = {
    **dict.fromkeys(
        ("text_neuron_config", "text_config", "vision_config", *_OF_PICTURES),
        "Use NeuronModelForImageTextToText for models with pictures.",
    ),
    **dict.fromkeys(
        ("is_medusa", "medusa_speculation_length", "num_medusa_heads", "medusa_tree"),
        'Pass speculative_config={"method": "medusa", "model": FOLDER}.',
    ),
    **dict.fromkeys(
        ("tensor_capture", "tensor_capture_config", "tensor_replacement_config"),
        "Run the transformers model on the CPU for intermediate tensors.",
    ),
    "token_tree_config": "Leave it out: candidates here are one sequence.",
    "is_mxfp4_compute": "Use a checkpoint in mxfp4: its experts are compiled so.",
    "sparse_attn": "Use a checkpoint whose own layers have a sliding window.",
}
_KNOWN = ("lora_ckpt_json", *NAMES, *OF_EXPERTS, *(field.name for field in dataclasses.fields(NeuronConfig)), *_REFUSED)
"""Every keyword of NxD Inference and of transformers_neuronx."""
_TNX_WEIGHTS, _TNX_CACHE = {"s8": "int8", "f8e4m3fn": "fp8"}, {"s8": "int8", "f8e4m3fn": "fp8"}
_WITHOUT_EFFECT = (
    *("ep_degree", "lm_head_dp_size", "embedding_dp_size", "enable_structured_outputs", "fp8_packed_kv"),
    *("apply_prefill_dcp", "modules_to_not_convert"),
)
_OF_PLUGIN = (
    *("num_batched_tokens_buckets", "num_seqs_buckets", "kv_segment_size_buckets", "decode_context_length_buckets"),
    *("on_device_sampling_config", "quantization", "tensor_capture", *_WITHOUT_EFFECT),
)
"""Keywords of the plugin for Trainium 2 and 3."""
_TYPES_OF_PLUGIN = {
    **dict.fromkeys((name for name in _OF_PLUGIN if name.endswith("_buckets")), list[COUNT]),
    **dict.fromkeys(("ep_degree", "lm_head_dp_size", "embedding_dp_size"), COUNT),
    **dict.fromkeys(("enable_structured_outputs", "fp8_packed_kv", "apply_prefill_dcp"), bool),
    "on_device_sampling_config": dict[str, Any],
}
_SCHEMES = ("bf16", "mxfp4", "mxfp8")
_SEGMENTS = (512, 1024, 2048, 4096, 8192)


@dataclasses.dataclass(kw_only=True)
class NeuronOptions:
    """What the Neuron part of a configuration asks for."""

    export: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keywords of an export."""
    prefix_caching: bool | None = None
    num_candidates: int | None = None
    """Tokens that a draft proposes."""
    is_eagle: bool = False
    """Whether the draft is an EAGLE draft."""
    stored: str | None = None
    """The method of quantization that the checkpoint must have."""
    adapters: dict[str, str] = dataclasses.field(default_factory=dict)
    """Folders of adapters by name."""
    lora_rank: int = 0
    """The largest rank of these adapters."""
    unused: list[str] = dataclasses.field(default_factory=list)
    """Keywords without effect."""


def neuron_options(args: EngineArgs) -> NeuronOptions:
    """Return what the Neuron part of an engine's arguments asks for."""
    config, plugin = neuron_part(args)
    _check_blocks(args, config)
    _check_prefixes(args, config, plugin)
    found = _of_nxdi(args, config)
    if plugin:
        found.export = joined(found.export, ((name, name, value) for name, value in _of_plugin(args, plugin, found)))
    return found


def neuron_part(args: EngineArgs) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the Neuron part of an engine's arguments: keywords of NxD Inference, and those of the plugin."""
    additional = dict(_mapping("additional_config", args.additional_config))
    flat = dict(_mapping("override_neuron_config", args.override_neuron_config))
    inner = _mapping("override_neuron_config", additional.pop("override_neuron_config", None))
    plugin = _mapping("neuron_config", additional.pop("neuron_config", None))
    if flat and inner and flat != inner:
        raise ConfigError(
            "override_neuron_config is in additional_config too, with other values.",
            hint="Pass one of them.",
            option="override_neuron_config",
        )
    _refuse(additional)
    check_known(additional, ("override_neuron_config", "neuron_config", *_OF_PICTURES), what="additional_config")
    return {**inner, **flat}, plugin


def keys_of(config: Mapping[str, Any], plugin: Mapping[str, Any]) -> dict[str, str]:
    """Return the key that names each option, for messages.

    Args:
        config: keywords of NxD Inference and transformers_neuronx.
        plugin: those of the plugin.
    """
    rows = ((config, OPTIONS_OF_KEYS), (plugin, OPTIONS_OF_PLUGIN))
    return {option: key for keys, options in rows for key, option in options.items() if keys.get(key)}


def _mapping(name: str, value: object) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} is a {type(value).__name__}.", hint="Pass a mapping.", option=name, value=str(value))
    return value or {}


def _check_blocks(args: EngineArgs, config: Mapping[str, Any]) -> None:
    """Check that both names of the number of blocks say the same, as the plugin does."""
    number = config.get("pa_num_blocks")
    if number is not None and number != args.num_gpu_blocks_override:
        raise ConfigError(
            f"pa_num_blocks={number}, but num_gpu_blocks_override={args.num_gpu_blocks_override}.",
            hint=f"Pass num_gpu_blocks_override={number} too.",
            option="pa_num_blocks",
            value=number,
            num_gpu_blocks_override=args.num_gpu_blocks_override,
        )


def _check_prefixes(args: EngineArgs, config: Mapping[str, Any], plugin: Mapping[str, Any]) -> None:
    """Check that blocks of shared prefixes have a size, for which only the newest plugin has a default."""
    is_asked = args.enable_prefix_caching is True or config.get("is_prefix_caching")
    if is_asked and not (args.block_size or config.get("pa_block_size") or plugin):
        message = "When prefix caching is enabled, block_size must be set."
        raise AssertedConfigError(message, hint="Pass for example block_size=32.", option="block_size")


def _of_nxdi(args: EngineArgs, config: Mapping[str, Any]) -> NeuronOptions:
    """Keywords of NxD Inference and of transformers_neuronx."""
    check_known(config, (*_KNOWN, *_NAMES), what="override_neuron_config", listed="docs/vllm.md")
    check_values(
        {name: one for name, one in config.items() if name != "kv_cache_quant" or not isinstance(one, Mapping)}
    )
    _mapping("on_device_sampling_config", config.get("on_device_sampling_config"))
    if config.get("torch_dtype") is not None:
        to_torch_dtype(config["torch_dtype"])
    _refuse(config)
    export = joined({}, ((name, _NAMES[name], _tuple(config[name])) for name in _NAMES if config.get(name)))
    export |= {name: config[name] for name in _PASSED if config.get(name) is not None}
    used = {*_NAMES, *_PASSED, "pa_num_blocks"}
    if config.get("pa_num_blocks"):
        export["num_blocks"] = config["pa_num_blocks"] + 1
    if config.get("sequence_parallel_enabled") and args.tensor_parallel_size > 1:
        export["sequence_parallel"] = True
        used.add("sequence_parallel_enabled")
    if quant := config.get("quant"):
        export["quantization"] = _choice("quant", _mapping("quant", quant).get("quant_dtype", "s8"), _TNX_WEIGHTS)
        used.add("quant")
    if cache := config.get("kv_cache_quant"):
        dtype = cache.get("quant_dtype", "s8") if isinstance(cache, Mapping) else "f8e4m3fn"
        export["kv_cache_dtype"] = _choice("kv_cache_quant", dtype, _TNX_CACHE)
        used.add("kv_cache_quant")
    found = NeuronOptions(export=export, prefix_caching=config.get("is_prefix_caching"))
    found.num_candidates = config.get("speculation_length") or None
    found.is_eagle = bool(config.get("enable_eagle_speculation") or config.get("is_eagle3"))
    if config.get("lora_ckpt_json"):
        adapters = LoraServingConfig(lora_ckpt_json=config["lora_ckpt_json"])
        found.adapters = {**adapters.lora_ckpt_paths_cpu, **adapters.lora_ckpt_paths}
        found.lora_rank = adapters.max_lora_rank
    used |= {"lora_ckpt_json", "is_prefix_caching", "speculation_length", "enable_eagle_speculation", "is_eagle3"}
    used |= {"is_continuous_batching", "is_block_kv_layout", "enable_fused_speculation"}
    found.unused = [
        name for name, value in config.items() if name not in used and name in _KNOWN and value not in (None, False)
    ]
    return found


def _refuse(config: Mapping[str, Any]) -> None:
    for name, hint in _REFUSED.items():
        if config.get(name):
            value = str(config[name])
            raise ConfigError(f"{name}={config[name]!r} is not supported.", hint=hint, option=name, value=value)


def _tuple(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _choice(name: str, value: Any, choices: Mapping[str, str]) -> str:
    if value not in choices:
        raise invalid_choice(name, value, tuple(choices))
    return choices[value]


def _of_plugin(args: EngineArgs, config: Mapping[str, Any], found: NeuronOptions) -> list[tuple[str, Any]]:
    """Keywords of the plugin for Trainium 2 and 3, with its checks."""
    check_known(config, _OF_PLUGIN, what="neuron_config")
    _refuse(config)
    check_types(config, _TYPES_OF_PLUGIN)
    if (scheme := config.get("quantization")) not in (None, *_SCHEMES):
        raise invalid_choice("quantization", scheme, _SCHEMES)
    found.stored = None if scheme == "bf16" else scheme
    export: list[tuple[str, Any]] = []
    if sizes := _rising(config, "num_batched_tokens_buckets"):
        _require_last("num_batched_tokens_buckets", sizes, "max_num_batched_tokens", args.max_num_batched_tokens)
        longest = args.max_model_len or sizes[-1]
        export.append(("prefill_buckets", tuple(dict.fromkeys(min(size, longest) for size in sizes))))
    if sizes := _rising(config, "num_seqs_buckets"):
        _require_last("num_seqs_buckets", sizes, "max_num_seqs", args.max_num_seqs)
        found.unused.append("num_seqs_buckets")
    if sizes := _rising(config, "kv_segment_size_buckets"):
        if wrong := [size for size in sizes if size not in _SEGMENTS or size % (args.block_size or 32)]:
            raise _not_one_of("kv_segment_size_buckets", wrong[0], f"{_SEGMENTS}, a multiple of block_size")
        found.unused.append("kv_segment_size_buckets")
    if sizes := _rising(config, "decode_context_length_buckets"):
        length = args.max_model_len
        if wrong := [size for size in sizes if size % 128 or (length is not None and size >= length)]:
            raise _not_one_of(
                "decode_context_length_buckets", wrong[0], f"a multiple of 128 below max_model_len={length}"
            )
        export.append(("decode_buckets", tuple(sizes) if length is None else (*sizes, length)))
    if (sampling := config.get("on_device_sampling_config")) is not None:
        export.append(("on_device_sampling_config", sampling))
    found.unused += [name for name in _WITHOUT_EFFECT if config.get(name)]
    return export


def _rising(config: Mapping[str, Any], name: str) -> Sequence[int]:
    sizes: Sequence[int] = config.get(name) or ()
    if sizes and not is_rising(sizes):
        raise _not_one_of(name, sizes, "a list of rising whole numbers")
    return sizes


def _require_last(name: str, sizes: Sequence[int], limit_name: str, limit: int | None) -> None:
    if limit is not None and sizes[-1] != limit:
        raise _not_one_of(name, sizes[-1], f"{limit_name}={limit} for its largest")


def _not_one_of(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name} has {value!r}, but must have {expected}.", option=name, value=value)
