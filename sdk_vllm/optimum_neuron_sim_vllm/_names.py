"""Which name of vLLM is which object here: the table of a front door (`optimum_neuron/base/doors.py`)."""

from __future__ import annotations

from optimum_neuron.base.doors import AS_PROGRAM, OTHERS, Missing, Names

_PACKAGE = "optimum_neuron.vllm_neuron"


def _ours(*names: str, **renamed: str) -> dict[str, str]:
    """Names of `optimum_neuron.vllm_neuron`, and vLLM's names of others."""
    both = {**dict.fromkeys(names), **renamed}
    return {name: f"{_PACKAGE}:{target or name}" for name, target in both.items()}


def _missing(alternative: str, *names: str) -> dict[str, str]:
    return {name: Missing(alternative) for name in names}


_PICTURES = "Use NeuronModelForImageTextToText for pictures, and NeuronModelForSpeechSeq2Seq for recordings."
_CONFIGS = "Pass the keywords to LLM or EngineArgs."
_MODELS = "Models are compiled from the checkpoint: write a family, see CONTRIBUTING."
_WEIGHTS = "Weights are read from a checkpoint: save it, and make another LLM."

_SAMPLING = _ours(
    *("BeamSearchParams", "GuidedDecodingParams", "RequestOutputKind", "SamplingParams", "StructuredOutputsParams")
)
_OUTPUTS = _ours(
    *("ClassificationOutput", "ClassificationRequestOutput", "CompletionOutput", "EmbeddingOutput"),
    *("EmbeddingRequestOutput", "PoolingOutput", "PoolingRequestOutput", "RequestOutput", "ScoringOutput"),
    "ScoringRequestOutput",
)
_ARGS = _ours("AsyncEngineArgs", "EngineArgs")
_INPUTS = _ours("EmbedsPrompt", "PromptType", "TextPrompt", "TokensPrompt")
_BEAMS = _ours("BeamSearchOutput", "BeamSearchSequence")
_TOKENIZERS = _ours("get_tokenizer")
_PARSER = _ours("FlexibleArgumentParser")
_NETWORK = _ours("get_ip", "get_open_port")
_LOGPROB = _ours("Logprob")
_ENGINE = _ours("LLMEngine")
_ASYNC = _ours("AsyncLLMEngine", AsyncLLM="AsyncLLMEngine")

NAMES: Names = {
    "vllm": {
        **_ours("LLM", "SamplingParams", "PoolingParams", "LLMEngine", "AsyncLLMEngine"),
        **_ARGS,
        **_ours("PromptType", "TextPrompt", "TokensPrompt"),
        **_OUTPUTS,
        **_ours(__version__="VLLM_VERSION", __version_tuple__="VLLM_VERSION_TUPLE"),
        **_missing(_MODELS, "ModelRegistry"),
        **_missing("One process drives all cores.", "initialize_ray_cluster"),
    },
    "vllm.assets": {},
    "vllm.assets.audio": _missing(_PICTURES, "AudioAsset"),
    "vllm.assets.image": _missing(_PICTURES, "ImageAsset"),
    "vllm.assets.video": _missing(_PICTURES, "VideoAsset"),
    "vllm.beam_search": _BEAMS,
    "vllm.config": _missing(
        _CONFIGS,
        *("CacheConfig", "CompilationConfig", "KVTransferConfig", "LoadConfig", "LoRAConfig", "ModelConfig"),
        *("ParallelConfig", "PoolerConfig", "SchedulerConfig", "SpeculativeConfig", "VllmConfig"),
    ),
    "vllm.distributed": _ours("cleanup_dist_env_and_memory"),
    "vllm.distributed.parallel_state": _ours(
        "cleanup_dist_env_and_memory",
        destroy_distributed_environment="cleanup_dist_env_and_memory",
        destroy_model_parallel="cleanup_dist_env_and_memory",
    ),
    "vllm.distributed.weight_transfer": {},
    "vllm.distributed.weight_transfer.nccl_common": _missing(_WEIGHTS, "trainer_init"),
    "vllm.distributed.weight_transfer.nccl_engine": _missing(
        _WEIGHTS, "NCCLTrainerSendWeightsArgs", "NCCLWeightTransferEngine"
    ),
    "vllm.distributed.weight_transfer.packed_tensor": _missing(_WEIGHTS, "packed_nccl_broadcast_producer"),
    "vllm.engine": {},
    "vllm.engine.arg_utils": _ARGS,
    "vllm.engine.async_llm_engine": _ASYNC,
    "vllm.engine.llm_engine": _ENGINE,
    "vllm.entrypoints": {},
    "vllm.entrypoints.cli": {},
    "vllm.entrypoints.cli.main": {AS_PROGRAM: "optimum_neuron_sim_vllm._program:main", **_ours("main")},
    "vllm.entrypoints.llm": _ours("LLM"),
    "vllm.entrypoints.openai": {},
    "vllm.entrypoints.openai.api_server": {
        AS_PROGRAM: "optimum_neuron_sim_vllm._program:api_server",
        **_ours("build_async_engine_client_from_engine_args"),
        **_missing("Run `vllm serve`, or make a Deployment of optimum_neuron.serving.", "build_app", "run_server"),
    },
    "vllm.envs": {OTHERS: Missing("Read os.environ, or the table in docs/environment_variables.md.")},
    "vllm.inputs": _INPUTS,
    "vllm.inputs.data": _INPUTS,
    "vllm.logger": _ours("init_logger"),
    "vllm.logprobs": _LOGPROB,
    "vllm.lora": {},
    "vllm.lora.request": _ours("LoRARequest"),
    "vllm.lora.utils": _ours("get_adapter_absolute_path"),
    "vllm.model_executor": {},
    "vllm.model_executor.models": _missing(_MODELS, "ModelRegistry"),
    "vllm.multimodal": _missing(_PICTURES, "MULTIMODAL_REGISTRY", "MultiModalDataDict"),
    "vllm.multimodal.image": _missing(_PICTURES, "convert_image_mode"),
    "vllm.multimodal.utils": _missing(_PICTURES, "fetch_image"),
    "vllm.outputs": _OUTPUTS,
    "vllm.platforms": _ours("current_platform"),
    "vllm.pooling_params": _ours("PoolingParams"),
    "vllm.sampling_params": _SAMPLING,
    "vllm.sequence": _LOGPROB,
    "vllm.tokenizers": _TOKENIZERS,
    "vllm.transformers_utils": {},
    "vllm.transformers_utils.tokenizer": {
        **_TOKENIZERS,
        **_ours("AnyTokenizer", "get_lora_tokenizer"),
    },
    "vllm.utils": {**_PARSER, **_NETWORK, **_ours("Counter", "random_uuid", "merge_async_iterators")},
    "vllm.utils.argparse_utils": _PARSER,
    "vllm.utils.network_utils": _NETWORK,
    "vllm.v1": {},
    "vllm.v1.engine": {},
    "vllm.v1.engine.async_llm": _ASYNC,
    "vllm.v1.engine.llm_engine": _ENGINE,
    "vllm.version": _ours(__version__="VLLM_VERSION", __version_tuple__="VLLM_VERSION_TUPLE"),
}
