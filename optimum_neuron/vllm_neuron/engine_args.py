"""vLLM's arguments of an engine, as keywords and as flags of the command line.

Each has an effect, has none on a simulated core (one INFO line lists those that were passed), or is refused with the
alternative. `options.py` reads those with an effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Self

from ..errors import ConfigError
from .arg_parser import FlexibleArgumentParser
from .keywords import checked, log_unused

_EFFECTIVE: Mapping[str, Any] = {
    "model": "facebook/opt-125m",
    "served_model_name": None,
    "tokenizer": None,
    "task": "auto",
    "runner": "auto",
    "tokenizer_mode": "auto",
    "trust_remote_code": False,
    "download_dir": None,
    "load_format": "auto",
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "seed": None,
    "max_model_len": None,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "block_size": None,
    "enable_prefix_caching": None,
    "max_num_batched_tokens": None,
    "enable_chunked_prefill": None,
    "max_num_seqs": None,
    "max_logprobs": 20,
    "revision": None,
    "hf_token": None,
    "quantization": None,
    "enable_lora": False,
    "max_loras": 1,
    "max_lora_rank": 16,
    "max_cpu_loras": None,
    "device": "auto",
    "num_gpu_blocks_override": None,
    "speculative_config": None,
    "speculative_model": None,
    "num_speculative_tokens": None,
    "ngram_prompt_lookup_max": None,
    "override_neuron_config": None,
    "additional_config": None,
    "generation_config": "auto",
    "override_generation_config": None,
    "hf_overrides": None,
}
"""Arguments with an effect, with vLLM's defaults."""

_WITHOUT_EFFECT: Mapping[str, Any] = {
    # The tokenizer is always loaded, from the folder of the model or of `tokenizer`.
    "skip_tokenizer_init": False,
    # Prompts with embeddings are refused.
    "enable_prompt_embeds": False,
    "tokenizer_revision": None,
    # Memory and graphs of a GPU.
    "gpu_memory_utilization": 0.9,
    "swap_space": 4,
    "cpu_offload_gb": 0,
    "enforce_eager": False,
    "max_seq_len_to_capture": 8192,
    "cuda_graph_sizes": None,
    "disable_custom_all_reduce": False,
    "disable_cascade_attn": False,
    "compilation_config": None,
    "optimization_level": None,
    "ray_workers_use_nsight": False,
    "model_impl": "auto",
    # Threads and processes: one process drives all cores.
    "distributed_executor_backend": None,
    "max_parallel_loading_workers": None,
    "disable_async_output_proc": False,
    "async_scheduling": None,
    # Results do not depend on how cores share experts and caches: tensor_parallel_size divides both.
    "enable_expert_parallel": False,
    "decode_context_parallel_size": 1,
    "cp_kv_cache_interleave_size": 1,
    "data_parallel_size_local": None,
    "data_parallel_address": None,
    "data_parallel_rpc_port": None,
    "data_parallel_backend": "mp",
    "tokenizer_pool_size": 0,
    "tokenizer_pool_type": "ray",
    "tokenizer_pool_extra_config": None,
    "code_revision": None,
    "ignore_patterns": None,
    "model_loader_extra_config": None,
    "use_tqdm_on_load": True,
    "pt_load_map_location": "cpu",
    "config_format": "auto",
    # How the scheduler works; results do not depend on it.
    "use_v2_block_manager": True,
    "prefix_caching_hash_algo": "builtin",
    "num_lookahead_slots": 0,
    "max_num_partial_prefills": 1,
    "max_long_partial_prefills": 1,
    "long_prefill_token_threshold": 0,
    "num_scheduler_steps": 1,
    "multi_step_stream_outputs": True,
    "preemption_mode": None,
    "scheduler_delay_factor": 0.0,
    "scheduling_policy": "fcfs",
    "disable_hybrid_kv_cache_manager": False,
    "speculative_max_model_len": None,
    # One library compiles constraints.
    "guided_decoding_backend": "auto",
    "guided_decoding_disable_fallback": False,
    "guided_decoding_disable_any_whitespace": False,
    "structured_outputs_config": None,
    # Logs and counters: /metrics has its own.
    "disable_log_stats": False,
    "show_hidden_metrics_for_version": None,
    "otlp_traces_endpoint": None,
    "collect_detailed_traces": None,
    # Adapters are stored in the dtype of the model.
    "fully_sharded_loras": False,
    "lora_dtype": "auto",
    "lora_extra_vocab_size": 256,
    # Pictures and recordings.
    "limit_mm_per_prompt": None,
    "disable_mm_preprocessor_cache": False,
    "mm_processor_cache_gb": 4,
    "disable_chunked_mm_input": False,
    "enable_multimodal_encoder_data_parallel": False,
    "allowed_local_media_path": "",
}
"""Arguments that change nothing here, with vLLM's defaults."""

_REFUSED: Mapping[str, tuple[Any, str]] = {
    "hf_config_path": (None, "Put config.json into the folder of the model."),
    "rope_scaling": (None, "Change config.json of the checkpoint."),
    "rope_theta": (None, "Change config.json of the checkpoint."),
    "disable_sliding_window": (False, "Leave it out: windows are those of the checkpoint."),
    "mm_processor_kwargs": (None, "Use NeuronModelForImageTextToText."),
    "enable_lora_bias": (False, "Leave it out: adapters have no bias."),
    "long_lora_scaling_factors": (None, "Leave it out: the scale of an adapter is in its files."),
    "enable_prompt_adapter": (False, "Pass a LoRA adapter with enable_lora=True."),
    "max_prompt_adapters": (1, "Pass a LoRA adapter with enable_lora=True."),
    "max_prompt_adapter_token": (0, "Pass a LoRA adapter with enable_lora=True."),
    "guided_decoding_disable_additional_properties": (False, 'Write "additionalProperties": false in the schema.'),
    "logits_processor_pattern": (None, "Pass logits_processors in SamplingParams."),
    "logits_processors": (None, "Pass logits_processors in SamplingParams."),
    "qlora_adapter_name_or_path": (None, "Merge the adapter with `optimum-cli export neuron --adapter`."),
    "scheduler_cls": ("vllm.core.scheduler.Scheduler", "Leave it out: there is one scheduler."),
    "worker_cls": ("auto", "Leave it out: there are no workers."),
    "worker_extension_cls": ("", "Leave it out: there are no workers."),
    "override_pooler_config": (None, "Save the model with sentence-transformers, whose modules.json has the pooling."),
    "pooler_config": (None, "Save the model with sentence-transformers, whose modules.json has the pooling."),
    "kv_transfer_config": (None, "Leave it out: a cache stays on its cores."),
    "ec_transfer_config": (None, "Leave it out: one process reads pictures and answers."),
    "mm_encoder_only": (False, "Use NeuronModelForImageTextToText."),
    "profiler_config": (None, "Set NEURON_RT_INSPECT_ENABLE=1, which profiles the process."),
    "kv_events_config": (None, "Leave it out: events of the cache are not published."),
    "enable_sleep_mode": (False, "Delete the LLM, which frees its memory."),
    "override_attention_dtype": (None, "Pass dtype."),
    "calculate_kv_scales": (False, "Leave it out: scales are found for each token, or in the checkpoint."),
    "enable_reasoning": (None, "Leave it out: the server finds the reasoning by the chat template."),
    "reasoning_parser": ("", "Leave it out: the server finds the reasoning by the chat template."),
}
"""Arguments that would change results in a way that the engine does not have: their only value, and the alternative."""

DEFAULTS: Mapping[str, Any] = {
    **_EFFECTIVE,
    **_WITHOUT_EFFECT,
    **{name: default for name, (default, _) in _REFUSED.items()},
}
"""Every argument, with vLLM's default."""

_SHORT = {
    "tensor_parallel_size": ("-tp",),
    "pipeline_parallel_size": ("-pp",),
    "data_parallel_size": ("-dp",),
    "quantization": ("-q",),
    "override_neuron_config": (),
}
_NUMBERS = (
    *("max_model_len", "block_size", "max_num_batched_tokens", "max_num_seqs", "num_gpu_blocks_override", "seed"),
    *("num_speculative_tokens", "ngram_prompt_lookup_max", "max_cpu_loras", "max_parallel_loading_workers"),
    "optimization_level",
)
_SWITCHES = ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "enable_reasoning")
_JSON = (
    *("override_neuron_config", "additional_config", "speculative_config", "override_generation_config"),
    *("compilation_config", "hf_overrides", "rope_scaling", "mm_processor_kwargs", "override_pooler_config"),
    *("model_loader_extra_config", "kv_transfer_config", "kv_events_config", "pooler_config"),
    *("structured_outputs_config", "tokenizer_pool_extra_config", "ec_transfer_config", "profiler_config"),
)
"""Arguments whose type does not follow from the default."""


class _CommandLine:
    """Arguments of an engine as flags."""

    @classmethod
    def add_cli_args(cls, parser: argparse.ArgumentParser) -> Any:
        """Add the flags to a parser, which is returned."""
        group = parser.add_argument_group("engine")
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # of its subclasses
            flags = [f"--{field.name.replace('_', '-')}", *_SHORT.get(field.name, ())]
            group.add_argument(*flags, dest=field.name, default=field.default, **_form(field.name, field.default))
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Self:
        """Return the arguments that a parser has read."""
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: getattr(args, name) for name in names if hasattr(args, name)})


def _form(name: str, default: object) -> dict[str, Any]:
    """How argparse reads an argument."""
    if isinstance(default, bool) or name in _SWITCHES:
        return {"action": argparse.BooleanOptionalAction}
    if name in _JSON:
        return {"type": _json, "metavar": "JSON"}
    if name == "served_model_name":
        return {"nargs": "+"}
    if name in _NUMBERS or isinstance(default, int):
        return {"type": _number, "metavar": "N"}
    return {"type": float, "metavar": "X"} if isinstance(default, float) else {"type": _text}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON: {error}") from error


def _number(text: str) -> int | None:
    """A number, also as 4k (4000) or 4K (4096).

    >>> _number("4k"), _number("2K")
    (4000, 2048)
    """
    if text == "None":
        return None
    sizes = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
    try:
        return round(float(text[:-1]) * sizes[text[-1]]) if text[-1:] in sizes else int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error


def _text(text: str) -> str | None:
    return None if text == "None" else text


_Fields: Any = dataclasses.make_dataclass(
    "_Fields", [(name, Any, dataclasses.field(default=default)) for name, default in DEFAULTS.items()]
)


@checked
@dataclasses.dataclass
class EngineArgs(_Fields, _CommandLine):
    """Arguments of an engine: vLLM's names and defaults.

    Example:
        ```python no-run
        engine = LLMEngine.from_engine_args(EngineArgs(model="tiny_llama", max_model_len=128, max_num_seqs=4))
        ```
    """

    @property
    def given(self) -> dict[str, Any]:
        """Arguments that differ from their defaults; an empty mapping or list is none."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            name: value
            for name, value in values.items()
            if value != DEFAULTS.get(name) and not (value in ({}, [], "", None) and not DEFAULTS.get(name))
        }

    def check(self) -> None:
        """Refuse arguments without counterpart, and log those without effect."""
        given = self.given
        for name, (_, hint) in _REFUSED.items():
            if name in given:
                value = str(given[name])
                raise ConfigError(f"{name}={given[name]!r} is not supported.", hint=hint, option=name, value=value)
        log_unused(name for name in _WITHOUT_EFFECT if name in given)

    def create_engine_config(self, usage_context: object = None) -> Any:
        """Return the sizes of the engine that these arguments ask for, as far as they are known before a compile."""
        import types

        model = types.SimpleNamespace(model=self.model, max_model_len=self.max_model_len, dtype=self.dtype)
        parallel = types.SimpleNamespace(tensor_parallel_size=self.tensor_parallel_size)
        return types.SimpleNamespace(model_config=model, parallel_config=parallel)


@checked
@dataclasses.dataclass
class AsyncEngineArgs(EngineArgs):
    """Arguments of an `AsyncLLMEngine`."""

    disable_log_requests: bool = False
    enable_log_requests: bool = False


__all__ = ["DEFAULTS", "AsyncEngineArgs", "EngineArgs", "FlexibleArgumentParser"]
