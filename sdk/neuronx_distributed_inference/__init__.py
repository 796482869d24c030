"""`neuronx_distributed_inference`, the vendor's library for language models, as a front door to
`optimum_neuron.neuronx_distributed_inference`.

    from neuronx_distributed_inference.models.config import NeuronConfig
    from neuronx_distributed_inference.models.llama.modeling_llama import LlamaInferenceConfig, NeuronLlamaForCausalLM
"""

from optimum_neuron.base.doors import OTHERS, Missing, Names, open_doors
from optimum_neuron.base.vendor import refuse_beside
from optimum_neuron.neuronx_distributed_inference.family_table import FAMILIES

refuse_beside("neuronx-distributed-inference", __name__)

_OURS = "optimum_neuron.neuronx_distributed_inference"
_BASE = "neuronx_distributed_inference"


def _ours(module: str, *names: str) -> dict[str, str]:
    return {name: f"{_OURS}{module}:{name}" for name in names}


_AUTHORS = Missing("Write the model for transformers: NeuronModelForCausalLM compiles it.")
_IMAGES = Missing("Use NeuronModelForImageTextToText of optimum_neuron.")
_OF_NETWORKS = {
    **dict.fromkeys(
        ("models.encoder_base", "models.layer_boundary_marker", "models.llama4.utils.layer_utils"), _AUTHORS
    ),
    **dict.fromkeys(("modules.attention", "modules.attention.attention_base", "modules.attention.gqa"), _AUTHORS),
    **dict.fromkeys(("modules.attention.utils", "modules.custom_calls", "modules.moe", "modules.moe_v2"), _AUTHORS),
    **dict.fromkeys(("modules.kvcache", "modules.kvcache.kv_cache_manager", "modules.kvcache.utils"), _AUTHORS),
    **dict.fromkeys(("modules.flashdecode", "modules.flashdecode.utils", "modules.async_execution"), _AUTHORS),
}
"""Modules with layers for authors of networks."""
_OF_IMAGES = (
    *("image_to_text_model_base", "llama4.utils", "llama4.utils.input_processor", "mllama.image_transform"),
    *("mllama.model_wrapper_mllama", "mllama.utils", "pixtral", "pixtral.modeling_pixtral", "pixtral.utils"),
    *("pixtral.utils.input_processor", "qwen2_vl", "qwen2_vl.modeling_qwen2_vl", "qwen2_vl.utils"),
    *("qwen2_vl.utils.input_processor", "qwen3_vl", "qwen3_vl.modeling_qwen3_vl", "qwen3_vl.utils"),
)
"""Modules of models with images."""
_INSIDE = Missing("Run the transformers model on the CPU for intermediate tensors.")
_FLUX = Missing("Use NeuronFluxPipeline of optimum_neuron.")
_SPEECH = Missing("Use NeuronModelForSpeechSeq2Seq of optimum_neuron.")
_ELSEWHERE = {
    **_OF_NETWORKS,
    **{f"models.{name}": _IMAGES for name in _OF_IMAGES},
    **dict.fromkeys(("models.whisper", "models.whisper.modeling_whisper"), _SPEECH),
    **dict.fromkeys(("models.diffusers", "models.diffusers.flux", "models.diffusers.flux.application"), _FLUX),
    **dict.fromkeys(("utils.debug_utils", "utils.snapshot", "utils.tensor_capture_utils"), _INSIDE),
    "utils.kv_cache_reconstruct_utils": _INSIDE,
}
"""Modules without a counterpart, with the alternative."""
_CONFIG = {
    **_ours("", "ChunkedPrefillConfig", "FusedSpecNeuronConfig", "HybridShardingConfig", "InferenceConfig"),
    **_ours("", "LoraServingConfig", "MoENeuronConfig", "MultimodalVisionNeuronConfig", "NeuronConfig"),
    **_ours("", "OnDeviceSamplingConfig", "RouterConfig", "TensorCaptureConfig", "to_dict", "to_torch_dtype"),
    **_ours("", "LONG_CONTEXT_SCRATCHPAD_PAGE_SIZE", "get_platform_lnc"),
    **_ours(".inference_config", "CONFIG_FILE"),
    "IncompatibleConfigError": "optimum_neuron.errors:ConfigError",
    "TensorReplacementConfig": Missing("Compare logits with utils.accuracy."),
}
_APPLICATION = {
    "NeuronApplicationBase": f"{_OURS}:NeuronBaseForCausalLM",
    **_ours("", "is_compiled"),
}


def _family(name: str) -> dict[str, str]:
    prefix = FAMILIES[name].name
    named = _ours(".families", f"Neuron{prefix}ForCausalLM", f"Neuron{prefix}Model")
    named |= _ours(".families", f"{prefix}InferenceConfig", f"{prefix}NeuronConfig")
    return named | dict.fromkeys((f"Neuron{prefix}{part}" for part in ("Attention", "DecoderLayer", "MLP")), _AUTHORS)


NAMES: Names = {
    _BASE: {"__version__": "optimum_neuron.version:__version__"},
    f"{_BASE}.inference_demo": {
        **_ours(".demo", "create_neuron_config", "main", "parse_args", "run_accuracy_check", "run_generation"),
        **_ours(".demo", "run_inference"),
        **_ours(".demo_arguments", "CheckAccuracyMode"),
    },
    f"{_BASE}.models": {},
    f"{_BASE}.models.application_base": _APPLICATION,
    f"{_BASE}.models.config": _CONFIG,
    f"{_BASE}.models.model_base": {**_ours("", "NeuronBaseForCausalLM"), "NeuronBaseModel": _AUTHORS},
    f"{_BASE}.models.model_wrapper": {
        **_ours(".model_wrapper", "ModelWrapper", "get_modules_to_not_convert"),
        **_ours(
            ".program_flags",
            *("CONTEXT_ENCODING_MODEL_TAG", "FUSED_SPECULATION_MODEL_TAG", "MEDUSA_MODEL_TAG"),
            *("SPECULATION_MODEL_TAG", "TOKEN_GENERATION_MODEL_TAG", "VISION_ENCODER_MODEL_TAG"),
        ),
        **dict.fromkeys(("DecoderModelInstance", "EncoderModelInstance"), _AUTHORS),
    },
    f"{_BASE}.models.mllama": {},
    f"{_BASE}.models.mllama.modeling_mllama": {
        "MllamaInferenceConfig": f"{_OURS}:ImageToTextInferenceConfig",
        **_ours("", "MultimodalVisionNeuronConfig"),
        "NeuronMllamaForCausalLM": Missing(
            "Use another model with images, such as Llama 4 or Qwen3-VL, with NeuronModelForImageTextToText."
        ),
    },
    **{f"{_BASE}.models.{name}": _family(name) for name in FAMILIES},
    **{f"{_BASE}.models.{name}.modeling_{name}": _family(name) for name in FAMILIES},
    **{f"{_BASE}.{name}": {OTHERS: alternative} for name, alternative in _ELSEWHERE.items()},
    f"{_BASE}.models.llama4.modeling_llama4_text": {
        "LlamaInferenceConfig": f"{_OURS}.families:Llama4InferenceConfig",
        "NeuronLlama4TextForCausalLM": f"{_OURS}.families:NeuronLlama4ForCausalLM",
    },
    f"{_BASE}.modules": {},
    f"{_BASE}.modules.autobucketing": _ours(
        ".autobucketing",
        *("generate_2d_buckets_for_prefix_caching", "generate_2d_buckets_for_prefix_caching_from_config"),
        *("generate_buckets", "generate_buckets_for_chunked_prefill_cte", "generate_buckets_for_cte"),
        *("generate_buckets_for_fused_spec", "generate_buckets_for_speculation", "generate_buckets_for_tkg"),
        "generate_buckets_on_chunk_size",
    ),
    f"{_BASE}.modules.checkpoint": _ours(
        ".state_dicts",
        *("create_n_layer_checkpoint", "find_and_update_key", "find_layer_idx", "load_config_and_update_layer_num"),
        *("load_state_dict", "prune_state_dict", "save_state_dict_safetensors"),
    ),
    f"{_BASE}.modules.generation": {},
    f"{_BASE}.modules.generation.sampling": _ours(
        ".sampling",
        *(
            "Sampler",
            "create_sampler",
            "cumsum",
            "infer_sampling_params",
            "prepare_sampling_params",
            "validate_sampling_params",
        ),
    ),
    f"{_BASE}.modules.lora_serving": _ours("", "LoraServingConfig"),
    f"{_BASE}.modules.lora_serving.config": _ours("", "LoraServingConfig"),
    f"{_BASE}.utils": {},
    f"{_BASE}.utils.accuracy": {
        **_ours(
            ".accuracy",
            *("check_accuracy", "generate_expected_logits", "get_generate_outputs"),
            *("get_generate_outputs_from_token_ids", "prepare_inputs_from_prompt", "shift_inputs_by_offset"),
        ),
        **_ours(".logits", "check_accuracy_embeddings", "check_accuracy_logits", "check_accuracy_logits_v2"),
        "LogitMatchingValidationError": "optimum_neuron.errors:LogitMatchingError",
        "generate_with_chunked_prefill": Missing("Use NeuronModelForCausalLM(continuous_batching=True)."),
    },
    f"{_BASE}.utils.benchmark": _ours(
        ".benchmark",
        *("BENCHMARK_REPORT_PATH", "Benchmark", "LatencyCollector", "benchmark_sampling", "generate_report"),
    ),
    f"{_BASE}.utils.constants": {
        **_ours(".accuracy", "TEST_PROMPT"),
        **_ours(".benchmark", "BENCHMARK_REPORT_PATH"),
        "CONTEXT_ENCODING_MODEL": f"{_OURS}.benchmark:CONTEXT",
        "END_TO_END_MODEL": f"{_OURS}.benchmark:END_TO_END",
        "SPECULATION_MODEL": f"{_OURS}.benchmark:SPECULATION",
        "TOKEN_GENERATION_MODEL": f"{_OURS}.benchmark:TOKENS",
    },
    f"{_BASE}.utils.argparse_utils": _ours(".demo_arguments", "StringOrIntegers"),
    f"{_BASE}.utils.distributed": {
        **_ours(
            ".ranks",
            *("get_cp_rank", "get_dp_rank", "get_dp_rank_spmd", "get_kv_head_group_number", "get_rank_8_by_8"),
            *("get_tp_group", "split_along_dim", "split_along_dim0_kernel_wrapper"),
        ),
        **dict.fromkeys(("get_init_rank", "get_init_world_size"), Missing("One process drives all cores: 0 of 1.")),
    },
    f"{_BASE}.utils.exceptions": {"LogitMatchingValidationError": "optimum_neuron.errors:LogitMatchingError"},
    f"{_BASE}.utils.hf_adapter": _ours("", "HuggingFaceGenerationAdapter", "load_pretrained_config"),
    f"{_BASE}.utils.random": {"set_random_seed": "transformers:set_seed"},
    f"{_BASE}.utils.testing": {
        **_ours(".testing", "FunctionModule", "build_cpu_model", "build_function", "build_module"),
        **_ours(".testing", "destroy_cpu_env", "destroy_mp", "init_cpu_env", "validate_accuracy"),
        "_get_rand_weights": f"{_OURS}.testing:random_weights",
        "_get_shared_checkpoint_path": f"{_OURS}.testing:shared_checkpoint_path",
        "_rand_interval": f"{_OURS}.testing:random_interval",
    },
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
