"""From vLLM's arguments of an engine to a model of the server: what to compile, and what all requests have.

`read_args` checks everything that is known before a compile.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base import env
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError, ModelError, invalid_choice
from ..hardware import instance_for_cores
from ..modeling import hidden_layers_of, require_heads, require_vocabulary
from ..options.configuration import CONFIG_FILE
from ..options.peer_attributes import joined
from ..options.sizes import sizes_up_to
from ..options.spelling import spelled
from ..options.value_types import COUNT, check_types
from ..serving import ModelSpec
from ..sources import find_folder, load_source, quantization, quantization_of, read_config
from .engine_args import EngineArgs
from .keywords import log_unused
from .neuron_options import NeuronOptions, keys_of, neuron_options, neuron_part

logger = logging.getLogger(__name__)

FAMILIES = ("inf2", "trn1", "trn2", "trn3")
"""Families that vLLM runs on, the smallest first."""
_DTYPES = {
    "auto": None,
    "half": "float16",
    "float": "float32",
    **{name: name for name in ("float16", "bfloat16", "float32")},
}
_CACHE_DTYPES = {"auto": None, "fp8": "fp8", "fp8_e4m3": "fp8", "int8": "int8"}
_DEVICES = ("auto", "neuron")
_BLOCK = 8
"""Tokens of which a block of vLLM's cache has a multiple."""
_TYPES = {
    **dict.fromkeys(("model", "tokenizer", "download_dir"), str),
    **dict.fromkeys(("revision", "quantization", "generation_config", "kv_cache_dtype", "speculative_model"), str),
    **dict.fromkeys(("trust_remote_code", "enable_prefix_caching", "enable_chunked_prefill", "enable_lora"), bool),
    **dict.fromkeys(("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_num_seqs"), COUNT),
    **dict.fromkeys(("max_model_len", "block_size", "max_num_batched_tokens", "num_gpu_blocks_override"), COUNT),
    **dict.fromkeys(("max_loras", "max_lora_rank", "max_cpu_loras", "ngram_prompt_lookup_max"), COUNT),
    **dict.fromkeys(("override_generation_config", "speculative_config", "hf_overrides"), dict[str, Any]),
    "served_model_name": str | list[str],
    "max_logprobs": int,
    "seed": int,
    "hf_token": str | bool,
}
_TASKS = {
    "auto": None,
    "generate": "text-generation",
    **dict.fromkeys(("embed", "embedding", "pooling"), "feature-extraction"),
    **dict.fromkeys(("classify", "score", "reward"), "text-classification"),
}
"""Values of `task` and `runner`, and tasks here."""
_ONLINE = {"fp8": "fp8", "int8": "int8", "neuron_quant": "int8", "int4": "int4"}
"""Values of `quantization` for a checkpoint that is not quantized."""


def read_args(args: EngineArgs) -> ModelSpec:
    """Return the model to load, after all checks that need no compile."""
    args.check()
    _check_words(args)
    found = neuron_options(args)
    log_unused(found.unused)
    where = {"revision": args.revision, "cache_dir": args.download_dir, "trust_remote_code": args.trust_remote_code}
    where = {name: value for name, value in {**where, "token": args.hf_token}.items() if value}
    folder = find_folder(args.model, with_weights=False, **where)
    config = read_config(folder, trust_remote_code=args.trust_remote_code)
    require_heads(config, args.tensor_parallel_size)
    _check_overrides(args, config)
    task = _TASKS[args.task if args.task != "auto" else args.runner]
    is_pooling = task not in (None, "text-generation")
    options: dict[str, Any] = {**where, **({"task": task} if task else {}), **_common(args, config, found)}
    if not (folder / CONFIG_FILE).is_file():
        options["disable_validation"] = True
    shares = found.prefix_caching if args.enable_prefix_caching is None else args.enable_prefix_caching
    spec = ModelSpec(
        source=str(args.model),
        name=_name(args),
        tokenizer=args.tokenizer,
        options=options,
        artifacts=env.compiled_artifacts(),
    )
    if is_pooling:
        options |= _of_pooling(args)
        return spec
    draft = _draft(args, found, config)
    options |= {**_of_decoder(args, found, options), **_layers_of(draft, config)}
    return dataclasses.replace(
        spec,
        allow_block_sharing=shares is not False,
        draft=draft,
        adapters=found.adapters,
    )


def _name(args: EngineArgs) -> str:
    names = args.served_model_name
    return str(args.model) if not names else names if isinstance(names, str) else names[0]


def _check_words(args: EngineArgs) -> None:
    """Check types, values that are one of a few words, and sizes."""
    check_types({name: str(one) if isinstance(one, Path) else one for name, one in vars(args).items()}, _TYPES)
    device = str(args.device)
    if device not in _DEVICES:
        raise ConfigError(
            f"device={device!r} is not simulated here.",
            hint='Pass device="neuron", or leave it out.',
            option="device",
            value=device,
        )
    env.check_vllm_framework()
    for name, choices in (("task", tuple(_TASKS)), ("runner", ("auto", "generate", "pooling"))):
        if getattr(args, name) not in choices:
            raise invalid_choice(name, getattr(args, name), choices)
    if args.tokenizer_mode not in ("auto", "hf", "slow"):
        raise invalid_choice("tokenizer_mode", args.tokenizer_mode, ("auto",))
    if args.load_format not in ("auto", "safetensors", "hf", "runai_streamer"):
        raise invalid_choice("load_format", args.load_format, ("auto", "safetensors"))
    size, length = args.block_size, args.max_model_len
    if size is not None and size not in (1, length) and size % _BLOCK:
        message = f"block_size={size} is no multiple of {_BLOCK}."
        hint = f"Pass a multiple of {_BLOCK}, such as 32, or max_model_len."
        raise ConfigError(message, hint=hint, option="block_size", value=size)


def _common(args: EngineArgs, config: PreTrainedConfig, found: NeuronOptions) -> dict[str, Any]:
    """Options of decoders and of models without answers: dtype, cores, quantization."""
    dtype = str(args.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise invalid_choice("dtype", dtype, tuple(_DTYPES))
    named = found.export.get("tensor_parallel_size", 1) if args.tensor_parallel_size == 1 else args.tensor_parallel_size
    cores = named * args.pipeline_parallel_size
    options: dict[str, Any] = {}
    if args.tensor_parallel_size > 1:
        options["tensor_parallel_size"] = args.tensor_parallel_size
    if args.pipeline_parallel_size > 1:
        options["pipeline_parallel_size"] = args.pipeline_parallel_size
    if cores > 1:
        both = {"tensor_parallel_size": "pipeline_parallel_size * tensor_parallel_size"}
        with spelled(both if args.pipeline_parallel_size > 1 else {}):
            choice = instance_for_cores(cores, families=FAMILIES)
        logger.info("instance_type: %s", choice)
        options["instance_type"] = choice.value
    if _DTYPES[dtype]:
        options["torch_dtype"] = _DTYPES[dtype]
    if scheme := _scheme(args, config, found):
        options["quantization"] = scheme
    return options


def _check_overrides(args: EngineArgs, config: PreTrainedConfig) -> None:
    """Check that `hf_overrides` changes nothing; an empty `quantization_config` means numbers as they are stored."""
    if args.hf_overrides is None:
        return
    found = quantization_of(config)
    is_stored = found is None or quantization.method_of(found) == "mxfp4"
    own = config.to_dict() | ({"quantization_config": {}} if is_stored else {})
    if changed := [name for name, value in args.hf_overrides.items() if name not in own or own[name] != value]:
        raise ConfigError(
            f"hf_overrides changes {', '.join(changed)}, but a checkpoint is compiled as it is.",
            hint="Change config.json of the checkpoint.",
            option="hf_overrides",
            names=changed,
        )


def _scheme(args: EngineArgs, config: PreTrainedConfig, found: NeuronOptions) -> str | None:
    """The scheme of `quantization`, which the checkpoint must have, or which quantizes it."""
    published = quantization_of(config)
    method = None if published is None else quantization.method_of(published)
    if found.stored is not None and found.stored != method:
        has = "not quantized" if method is None else f"quantized by {method}"
        raise ConfigError(
            f"neuron_config asks for quantization={found.stored!r}, but the checkpoint is {has}.",
            hint='Leave it out, or use such a checkpoint; quantization="fp8" of LLM quantizes a plain one.',
            option="quantization",
            value=found.stored,
            method=method,
        )
    name = args.quantization
    if name is None:
        return None
    if method is not None and name != "neuron_quant":
        plain = str(name).removesuffix("_marlin").replace("_", "-")
        if plain != method:
            raise ConfigError(
                f"quantization={name!r}, but the checkpoint is quantized by {method}.",
                hint="Leave quantization out: it follows from the checkpoint.",
                option="quantization",
                value=name,
                method=method,
            )
        return None
    if method is not None or (name == "neuron_quant" and "quantized" in found.export):
        return None
    if name not in _ONLINE:
        message = f"quantization={name!r}, but the checkpoint is not quantized."
        hint = f"Use a checkpoint that is, or one of {', '.join(_ONLINE)}, or leave it out."
        raise ConfigError(message, hint=hint, option="quantization", value=name, choices=list(_ONLINE))
    is_fp8 = name == "neuron_quant" and env.vllm_quant_dtype() == "f8e4m3fn"
    return "fp8" if is_fp8 else _ONLINE[name]


_OF_DECODERS = (
    *("block_size", "num_gpu_blocks_override", "max_num_batched_tokens", "enable_chunked_prefill", "kv_cache_dtype"),
    *("enable_prefix_caching", "override_neuron_config", "additional_config"),
)
"""Arguments that mean nothing for a model that answers in one call."""


def _of_pooling(args: EngineArgs) -> dict[str, Any]:
    """Options of a model that answers in one call."""
    given = args.given
    for name in ("enable_lora", "speculative_config"):
        if name in given:
            message = f"{name} is not supported for task={args.task!r}."
            raise ConfigError(message, hint="Leave it out.", option=name, value=str(given[name]))
    log_unused((name for name in _OF_DECODERS if name in given), where="on a model that answers in one call")
    sizes = {"sequence_length": args.max_model_len, "batch_size": args.max_num_seqs}
    exact = {"auto_cast": "none"} if str(args.dtype) in ("float", "float32", "torch.float32") else {}
    return {name: value for name, value in sizes.items() if value is not None} | exact


def _of_decoder(args: EngineArgs, found: NeuronOptions, common: dict[str, Any]) -> dict[str, Any]:
    """Options of continuous batching."""
    own: dict[str, Any] = {
        "batch_size": args.max_num_seqs,
        "sequence_length": args.max_model_len,
        "block_size": args.block_size,
        "num_blocks": args.num_gpu_blocks_override and args.num_gpu_blocks_override + 1,
        "tensor_parallel_size": common.get("tensor_parallel_size"),
        "pipeline_parallel_size": common.get("pipeline_parallel_size"),
        "torch_dtype": common.get("torch_dtype"),
        "prefill_chunk_size": args.max_num_batched_tokens if args.enable_chunked_prefill else None,
    }
    if str(args.kv_cache_dtype) not in _CACHE_DTYPES:
        raise invalid_choice("kv_cache_dtype", args.kv_cache_dtype, tuple(_CACHE_DTYPES))
    own["kv_cache_dtype"] = _CACHE_DTYPES[str(args.kv_cache_dtype)]
    if found.adapters and not args.enable_lora:
        message = "lora_ckpt_json needs enable_lora."
        raise ConfigError(message, hint="Pass enable_lora=True.", option="enable_lora", adapters=list(found.adapters))
    if args.enable_lora:
        own["max_loras"] = max(args.max_loras, args.max_cpu_loras or 0)
        own["max_lora_rank"] = max(args.max_lora_rank, found.lora_rank)
    keys = keys_of(*neuron_part(args))
    options = joined(
        {name: value for name, value in own.items() if value is not None},
        ((f"override_neuron_config[{keys.get(name, name)!r}]", name, value) for name, value in found.export.items()),
    )
    if (chunk := options.get("prefill_chunk_size")) and "prefill_buckets" in options:
        options["prefill_buckets"] = sizes_up_to(options["prefill_buckets"], chunk)
    length = options.get("sequence_length")
    for name, sizes in env.vllm_buckets().items():
        if name not in options:
            options[name] = tuple(sorted({min(size, length) if length else size for size in sizes}))
    if length and (buckets := options.get("decode_buckets")) and max(buckets) < length:
        options["decode_buckets"] = (*buckets, length)  # sequences go on beyond the buckets that were named
    if env.on_device_sampling_disabled():
        options.pop("on_device_sampling_config", None)
    if args.speculative_config or args.speculative_model:
        options |= {"speculation": True, "extend_length": _num_candidates(args, found) + 1}
    return {**options, "continuous_batching": True}


def _speculation(args: EngineArgs) -> dict[str, Any]:
    """The configuration of a draft, also in the form of older scripts."""
    old = {
        "model": args.speculative_model,
        "num_speculative_tokens": args.num_speculative_tokens,
        "prompt_lookup_max": args.ngram_prompt_lookup_max,
    }
    config = dict(args.speculative_config or {}) or {name: value for name, value in old.items() if value is not None}
    if config.get("model") == "[ngram]":
        config = {**config, "model": None, "method": "ngram"}
    return config


def _num_candidates(args: EngineArgs, found: NeuronOptions) -> int:
    config = _speculation(args)
    number = config.get("num_speculative_tokens", found.num_candidates)
    if not isinstance(number, int) or number < 1:
        raise ConfigError(
            f"num_speculative_tokens must be a whole number, at least 1, not {number!r}.",
            option="num_speculative_tokens",
            value=number,
        )
    return number


_METHODS = {
    "draft_model": "assistant",
    "ngram": "lookup",
    **dict.fromkeys(("eagle", "eagle3"), "eagle"),
    "medusa": "medusa",
}
_OF_SPECULATION = ("model", "num_speculative_tokens", "method", "prompt_lookup_max", "draft_tensor_parallel_size")
_TUNING = ("prompt_lookup_min", "max_model_len", "quantization", "revision", "disable_by_batch_size", "enforce_eager")


def _draft(args: EngineArgs, found: NeuronOptions, config_of_model: PreTrainedConfig) -> dict[str, Any]:
    """The draft of all requests; empty without one."""
    config = _speculation(args)
    if not config:
        return {}
    if unknown := [name for name in config if name not in (*_OF_SPECULATION, *_TUNING)]:
        message = f"speculative_config has {', '.join(unknown)}, which is not supported."
        raise ConfigError(message, hint=f"Pass {', '.join(_OF_SPECULATION)}.", options=unknown)
    method = config.get("method") or "draft_model"
    if method not in _METHODS:
        raise invalid_choice("method", method, tuple(_METHODS))
    kind = "eagle" if found.is_eagle else _METHODS[method]
    if kind != "lookup" and not config.get("model"):
        raise ModelError("speculative_config names no model.", hint="Pass model, or method='ngram'.", option="model")
    number = _num_candidates(args, found)
    if kind == "assistant" and facts_of(read_config(find_folder(str(config["model"])))).is_eagle:
        kind = "eagle"  # the vendor's flag in the draft's own configuration
    if kind != "lookup":
        _check_draft(config_of_model, str(config["model"]), kind)
    return {"kind": kind, "model": config.get("model"), "num_candidates": number}


def _layers_of(draft: Mapping[str, Any], config: PreTrainedConfig) -> dict[str, Any]:
    """The option of an export that returns the hidden states which an EAGLE draft reads."""
    if draft.get("kind") != "eagle":
        return {}
    num_layers = config.get_text_config(decoder=True).num_hidden_layers
    layers = hidden_layers_of(find_folder(str(draft["model"])), num_layers)
    return {} if layers is None else {"hidden_state_layers": layers, "sequence_parallel": False}


def _check_draft(target: PreTrainedConfig, draft: str, kind: str) -> None:
    """Check the folder of a draft, and the vocabulary of one that is a model itself, before minutes are spent."""
    folder = find_folder(draft)
    if kind != "assistant":
        return
    configs = (load_source(folder, with_weights=False).config, target)
    require_vocabulary(*(config.get_text_config(decoder=True).vocab_size for config in configs))
