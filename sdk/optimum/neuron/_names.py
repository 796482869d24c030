"""Which name of Optimum Neuron is which object here: the table of a front door (`optimum_neuron/base/doors.py`)."""

from __future__ import annotations

import optimum_neuron
from optimum_neuron.base.doors import ON_IMPORT, Missing, Names, OfExtra

MODELS = [name for name in optimum_neuron.__all__ if name.startswith("NeuronModelFor")]
_OTHER_MODELS = ["NeuronSentenceTransformer", "NeuronTracedModel", "NeuronWhisperForConditionalGeneration"]
TRAINERS = ["NeuronTrainer", "NeuronTrainingArguments", "Seq2SeqNeuronTrainer", "Seq2SeqNeuronTrainingArguments"]
SFT = ["NeuronSFTConfig", "NeuronSFTTrainer"]
PREFERENCES = ["NeuronGRPOConfig", "NeuronGRPOTrainer", "NeuronORPOConfig", "NeuronORPOTrainer"]

TWINS = {
    "NeuronBertModel": "NeuronModelForFeatureExtraction",
    "NeuronBertForMaskedLM": "NeuronModelForMaskedLM",
    "NeuronBertForQuestionAnswering": "NeuronModelForQuestionAnswering",
    "NeuronBertForSequenceClassification": "NeuronModelForSequenceClassification",
    "NeuronBertForTokenClassification": "NeuronModelForTokenClassification",
    "NeuronBertForMultipleChoice": "NeuronModelForMultipleChoice",
    "NeuronCLIPModel": "NeuronModelForZeroShotImageClassification",
    "NeuronCLIPForImageClassification": "NeuronModelForImageClassification",
    "NeuronYolosForObjectDetection": "NeuronModelForObjectDetection",
    "NeuronSentenceTransformers": "NeuronSentenceTransformer",
    "NeuronModelForSentenceTransformers": "NeuronSentenceTransformer",
}
"""Names after an architecture, or a plural, of classes that serve a task."""

ACCELERATE = {
    "NeuronAccelerator": "optimum_neuron.trainer.accelerator:NeuronAccelerator",
    "NeuronAcceleratorState": "optimum_neuron.trainer.accelerator:NeuronAcceleratorState",
    "NeuronPartialState": "accelerate.state:PartialState",
}
"""accelerate finds the device "neuron" by itself; the state of a process needs nothing more."""

_STOCK_CALLS = "The code of diffusers' pipelines runs; use a class such as `NeuronStableDiffusionPipeline`."
_VLLM = "Serve compiled models with `optimum-cli neuron serve`, which answers as vLLM's server does."
_ALL_COMPONENTS = "`main_export` finds the components of a pipeline, their calls, and their shapes."
_SHARDING = (
    "Weights keep transformers' names and shapes here, so nothing is transformed: `NeuronTrainer` shards them by the "
    "plans of `optimum_neuron.distributed`, and `optimum-cli neuron consolidate` joins checkpoints."
)
_PATCHING = "The simulator patches no other package. Use `unittest.mock.patch`."

DIFFUSION_CLASSES = ["NeuronDiffusionPipeline", "NeuronDiffusionPipelineBase", *optimum_neuron.DIFFUSION_NAMES]
_DIFFUSION_MIXINS = [
    "NeuronIPAdapterMixin",
    "NeuronStableDiffusionPipelineMixin",
    "NeuronStableDiffusionXLPipelineMixin",
]
_SHARDING_NAMES = [
    "ALL_ATTENTION_FUNCTIONS",
    "CustomModule",
    "FusedLinearsSpec",
    "GQAQKVColumnParallelLinearSpec",
    "ModelWeightTransformationSpec",
    "ModelWeightTransformationSpecs",
    "NeuronModelMixin",
    "adapt_peft_config_for_model",
    "adapt_state_dict",
    "create_parameter_metadata",
    "get_pipeline_parameters_for_current_stage",
    "specialize_transformation_specs_for_model",
    "to_original_peft_config_for_model",
    "to_original_weights",
]
_PATCHING_NAMES = ["DynamicPatch", "ModelPatcher", "Patcher", "patch_everywhere", "patch_within_function"]
_ADAPTER_NAMES = ["IPAdapterArguments", "ImageEncoderArguments", "InputShapesArguments", "LoRAAdapterArguments"]
_DIFFUSION_FOLDERS = [
    f"DIFFUSION_MODEL_{name}_NAME"
    for name in ("CONTROLNET", "IMAGE_ENCODER", "TEXT_ENCODER", "TEXT_ENCODER_2", "TRANSFORMER", "UNET")
    + ("VAE_DECODER", "VAE_ENCODER")
]
_DIFFUSION_EXPORTS = [
    "build_stable_diffusion_components_mandatory_shapes",
    "get_diffusion_models_for_export",
    "get_stable_diffusion_models_for_export",
    "infer_stable_diffusion_shapes_from_diffusers",
]
_COMPONENT_NAMES = [
    "NeuronControlNetModel",
    "NeuronModelTextEncoder",
    "NeuronModelTransformer",
    "NeuronModelUnet",
    "NeuronModelVaeDecoder",
    "NeuronModelVaeEncoder",
    "NeuronMultiControlNetModel",
]
_CACHE_NAMES = [
    "delete_custom_cache_repo_name_from_hf_home",
    "get_hf_hub_cache_repo",
    "get_neuron_cache_path",
    "load_custom_cache_repo_name_from_hf_home",
    "set_custom_cache_repo_name_in_hf_home",
    "set_neuron_cache_path",
]

ABSENT = {
    **dict.fromkeys(_DIFFUSION_MIXINS, _STOCK_CALLS),
    **dict.fromkeys(_DIFFUSION_EXPORTS, _ALL_COMPONENTS),
    **dict.fromkeys(_SHARDING_NAMES, _SHARDING),
    **dict.fromkeys(_PATCHING_NAMES, _PATCHING),
    **dict.fromkeys(
        ["MixedPrecisionConfig", "MixedPrecisionMode"], 'Pass `mixed_precision="bf16"` to `NeuronAccelerator`.'
    ),
    "ModelParallelismPlugin": "Pass `tensor_parallel_size` and other sizes to `NeuronTrainingArguments`.",
    **dict.fromkeys(["ParallelizersManager", "TensorParallelizer", "make_optimizer_constructor_lazy"], _SHARDING),
    "NeuronGenerationMixin": "Compiled models have transformers' `GenerationMixin`; call `generate`.",
    "patch_generation_mixin_to_neuron_generation_mixin": "Compiled models have `generate`; nothing is to be patched.",
    "NeuronArgumentParser": "Use `NeuronHfArgumentParser`.",
    "DTYPE_MAPPER": "Pass torch_dtype as a string or a torch.dtype.",
    **dict.fromkeys(["OptimumNeuronPlatform", "OptimumNeuronWorker"], _VLLM),
    "get_original_merged_weights_for_vllm": "Merge adapters with `optimum_neuron.exporters.merge_adapter`.",
    "image_uri": "There are no images of containers; build one with the Dockerfile of this project.",
    "MovingAverageWindow": "`NeuronTrainer` logs throughput itself; see docs/training.md.",
    "TrainingMetricsCollector": "`NeuronTrainer` logs throughput itself; see docs/training.md.",
}
"""Names without a counterpart, and their alternatives."""


def _absent(*names: str) -> dict[str, str]:
    return {name: Missing(ABSENT[name]) for name in names}


def _of(module: str, *names: str) -> dict[str, str]:
    return {name: f"optimum.neuron.{module}:{name}" for name in names}


def _ours(*names: str) -> dict[str, str]:
    """Names of `optimum_neuron`; model classes and pipelines under the rules of Optimum Neuron."""
    diffusion = [name for name in names if name in DIFFUSION_CLASSES]
    models = [name for name in names if name in (*MODELS, *_OTHER_MODELS)]
    rows = {
        **{name: f"optimum_neuron:{name}" for name in names},
        **_of("_classes", *models),
        **_of("_diffusion", *diffusion),
        **_of("_pipelines", *(name for name in names if name == "pipeline")),
    }
    of_extras = {*optimum_neuron.TRAINING_NAMES, *optimum_neuron.DIFFUSION_NAMES}
    return {name: OfExtra(target) if name in of_extras else target for name, target in rows.items()}


def _hub_cache(*names: str) -> dict[str, str]:
    return {name: f"optimum_neuron.exporters.hub_cache:{name}" for name in names}


def _export_configs(*names: str) -> dict[str, str]:
    return {name: f"optimum.exporters.neuron._configs:{name}" for name in names}


def _twins(*names: str) -> dict[str, str]:
    return {name: f"optimum.neuron._classes:{TWINS[name]}" for name in names}


_EXPORT_CONFIGS = _export_configs(
    *("AudioNeuronConfig", "TextAndVisionNeuronConfig", "TextEncoderNeuronConfig", "TextSeq2SeqNeuronConfig"),
    "VisionNeuronConfig",
)
_CONVERSIONS = {
    **{name: f"optimum.exporters.neuron._convert:{name}" for name in ("export", "export_models")},
    **{
        name: f"optimum.exporters.neuron._validation:{name}"
        for name in ("validate_model_outputs", "validate_models_outputs")
    },
}
_PARSER = {"NeuronHfArgumentParser": "transformers:HfArgumentParser"}
_AVAILABLE = {"is_neuronx_available": "optimum.neuron.utils.import_utils:is_neuronx_available"}
_LAZY_LOAD = {"lazy_load_for_parallelism": "optimum.neuron.distributed._loading:lazy_load_for_parallelism"}
_JOIN = "consolidate_model_parallel_checkpoints_to_unified_checkpoint"
_CONSOLIDATE = {
    name: f"optimum.neuron.models.training._consolidation:{name}"
    for name in (_JOIN, "consolidate_model_parallel_checkpoints")
}
_MACHINE = "optimum.neuron.utils._machine"
_PACKAGES = {
    name: f"optimum.neuron.utils.import_utils:{name}"
    for name in ("is_accelerate_available", "is_neuronx_distributed_available", "is_package_available")
    + ("is_peft_available", "is_vllm_available")
    + ("is_torch_neuronx_available", "is_torch_xla_available", "is_trl_available")
}
_PEFT = {
    "NeuronPeftModel": "peft:PeftModel",
    "NeuronPeftModelForCausalLM": "peft:PeftModelForCausalLM",
    "get_peft_model": "peft:get_peft_model",
}
_TRAINING_MODELS = {
    **{
        name: f"optimum_neuron.trainer.models:{name}"
        for name in ("GraniteForCausalLM", "LlamaForCausalLM", "NeuronModelForCausalLM", "Qwen3ForCausalLM")
    },
    "NeuronModel": "transformers:PreTrainedModel",
    "TrainingNeuronConfig": "optimum_neuron.trainer:TrainingNeuronConfig",
}


def _training_modules(architecture: str, name: str) -> dict[str, dict[str, str]]:
    module = f"optimum.neuron.models.training.{architecture}"
    return {module: {}, f"{module}.modeling_{architecture}": {name: _TRAINING_MODELS[name]}}


NAMES: Names = {
    "optimum.neuron": {
        **_absent("ModelParallelismPlugin"),
        **_ours(*optimum_neuron.__all__, *optimum_neuron.TRAINING_NAMES, *optimum_neuron.DIFFUSION_NAMES),
        **_twins(*TWINS),
        **ACCELERATE,
        **_PARSER,
        **_AVAILABLE,
        "get_peft_model": _PEFT["get_peft_model"],
    },
    "optimum.neuron.accelerate": ACCELERATE,
    "optimum.neuron.accelerate.accelerator": {"NeuronAccelerator": ACCELERATE["NeuronAccelerator"]},
    "optimum.neuron.accelerate.state": {
        name: ACCELERATE[name] for name in ("NeuronAcceleratorState", "NeuronPartialState")
    },
    "optimum.neuron.accelerate.utils": {},
    "optimum.neuron.accelerate.utils.dataclasses": _absent(
        "MixedPrecisionConfig", "MixedPrecisionMode", "ModelParallelismPlugin"
    ),
    "optimum.neuron.cache": _hub_cache(
        *("get_hub_cached_entries", "get_hub_cached_models", "hub_neuronx_cache", "synchronize_hub_cache"),
    ),
    "optimum.neuron.cache.entries": {
        name: f"optimum.neuron.cache._entries:{name}"
        for name in ("ModelCacheEntry", "MultiModelCacheEntry", "SingleModelCacheEntry")
    },
    "optimum.neuron.cache.training": {
        "patch_neuron_cc_wrapper": "optimum.neuron.cache._wrapper:patch_neuron_cc_wrapper"
    },
    "optimum.neuron.cache.hub_cache": {
        **_hub_cache(
            *("get_hub_cached_entries", "get_hub_cached_models", "hub_neuronx_cache"),
            *("select_hub_cached_entries", "synchronize_hub_cache"),
        ),
        **_of("cache.hub_cache", "CompileCacheHfProxy", "create_hub_compile_cache_proxy"),
    },
    "optimum.neuron.configuration_utils": _ours("NeuronConfig"),
    "optimum.neuron.distributed": {
        **_LAZY_LOAD,
        **_absent("ParallelizersManager", "TensorParallelizer", "make_optimizer_constructor_lazy"),
    },
    "optimum.neuron.distributed.checkpointing": _CONSOLIDATE,
    "optimum.neuron.distributed.utils": {**_LAZY_LOAD, **_absent("make_optimizer_constructor_lazy")},
    "optimum.neuron.generation": {
        **_absent("NeuronGenerationMixin"),
        **_of("generation.logits_process", "FusedLogitsWarper"),
        **_of("generation.token_selector", "TokenSelector"),
    },
    "optimum.neuron.modeling": {**_ours(*MODELS), **_twins(*TWINS)},
    "optimum.neuron.modeling_base": {
        "NeuronModel": "optimum_neuron.modeling.loading:NeuronModel",
        "OptimizedModel": "optimum.modeling_base:OptimizedModel",
    },
    "optimum.neuron.modeling_decoder": {
        "get_available_cores": f"{_MACHINE}:get_num_neuron_cores",
        **_ours("NeuronModelForCausalLM", "NeuronModelForEmbedding", "NeuronModelForImageTextToText"),
    },
    "optimum.neuron.modeling_diffusion": {**_ours(*DIFFUSION_CLASSES), **_of("_diffusion", *_COMPONENT_NAMES)},
    "optimum.neuron.modeling_sentence_transformers": _twins("NeuronSentenceTransformers"),
    "optimum.neuron.modeling_seq2seq": _ours("NeuronModelForSeq2SeqLM", "NeuronWhisperForConditionalGeneration"),
    "optimum.neuron.modeling_traced": _ours("NeuronTracedModel"),
    "optimum.neuron.models": {},
    "optimum.neuron.models.inference": {},
    "optimum.neuron.models.inference.backend": {},
    "optimum.neuron.models.inference.backend.config": _of("_configs", "NxDNeuronConfig", "NxDVLMNeuronConfig"),
    "optimum.neuron.models.inference.backend.modules": {},
    "optimum.neuron.models.inference.backend.modules.generation": {},
    "optimum.neuron.models.inference.backend.neuron_device_memory": {
        "get_neuron_device_indices": f"{_MACHINE}:get_neuron_device_indices"
    },
    "optimum.neuron.models.inference.bert": _twins(*(name for name in TWINS if name.startswith("NeuronBert"))),
    "optimum.neuron.models.inference.bert.modeling_bert": _twins(
        *(name for name in TWINS if name.startswith("NeuronBert"))
    ),
    "optimum.neuron.models.inference.clip.modeling_clip": _twins("NeuronCLIPForImageClassification", "NeuronCLIPModel"),
    "optimum.neuron.models.inference.whisper.modeling_whisper": _ours("NeuronWhisperForConditionalGeneration"),
    "optimum.neuron.models.inference.yolos.modeling_yolos": _twins("NeuronYolosForObjectDetection"),
    "optimum.neuron.models.inference.clip": _twins("NeuronCLIPForImageClassification", "NeuronCLIPModel"),
    "optimum.neuron.models.inference.modeling_utils": _ours(
        "NeuronModelForCausalLM", "NeuronModelForEmbedding", "NeuronModelForImageTextToText"
    ),
    "optimum.neuron.models.inference.whisper": _ours("NeuronWhisperForConditionalGeneration"),
    "optimum.neuron.models.inference.yolos": _twins("NeuronYolosForObjectDetection"),
    "optimum.neuron.models.training": {**_TRAINING_MODELS, **_CONSOLIDATE, **_absent(*_SHARDING_NAMES)},
    "optimum.neuron.models.training.checkpointing": _CONSOLIDATE,
    **_training_modules("granite", "GraniteForCausalLM"),
    **_training_modules("llama", "LlamaForCausalLM"),
    **_training_modules("qwen3", "Qwen3ForCausalLM"),
    "optimum.neuron.models.training.modeling_auto": {
        name: _TRAINING_MODELS[name] for name in ("NeuronModel", "NeuronModelForCausalLM")
    },
    "optimum.neuron.models.training.training_utils": {
        "get_model_param_count": "transformers.trainer_pt_utils:get_model_param_count",
        "is_logging_process": f"{_MACHINE}:is_logging_process",
        "skip_first_batches": "accelerate:skip_first_batches",
    },
    "optimum.neuron.hf_argparser": _PARSER,
    "optimum.neuron.models.training.config": {"TrainingNeuronConfig": _TRAINING_MODELS["TrainingNeuronConfig"]},
    "optimum.neuron.peft": _PEFT,
    "optimum.neuron.peft.mapping_func": {"get_peft_model": _PEFT["get_peft_model"]},
    "optimum.neuron.peft.peft_model": {name: _PEFT[name] for name in ("NeuronPeftModel", "NeuronPeftModelForCausalLM")},
    "optimum.neuron.peft.utils": {},
    "optimum.neuron.peft.utils.vllm": _absent("get_original_merged_weights_for_vllm"),
    "optimum.neuron.pipelines": {**_ours("pipeline"), **_absent(*_DIFFUSION_MIXINS)},
    "optimum.neuron.pipelines.transformers": {**_ours("pipeline"), **_of("_pipelines", "NEURONX_SUPPORTED_TASKS")},
    "optimum.neuron.pipelines.transformers.base": {
        **_ours("pipeline"),
        **_of("_pipelines", "NEURONX_SUPPORTED_TASKS"),
    },
    "optimum.neuron.pipelines.transformers.sentence_transformers": {
        "FeatureExtractionPipeline": "optimum_neuron.pipelines.sentences:SentencePipeline",
        **_of("utils._machine", "is_sentence_transformer_model"),
    },
    "optimum.neuron.trainers": _ours(*TRAINERS, *SFT, *PREFERENCES),
    "optimum.neuron.trainers.grpo_config": _ours("NeuronGRPOConfig"),
    "optimum.neuron.trainers.grpo_trainer": _ours("NeuronGRPOTrainer"),
    "optimum.neuron.trainers.orpo_trainer": _ours("NeuronORPOTrainer"),
    "optimum.neuron.trainers.metrics": _absent("MovingAverageWindow", "TrainingMetricsCollector"),
    "optimum.neuron.trainers.sft_config": _ours("NeuronSFTConfig"),
    "optimum.neuron.trainers.sft_trainer": _ours("NeuronSFTTrainer"),
    "optimum.neuron.trainers.training_args": _ours("NeuronTrainingArguments"),
    "optimum.neuron.trainers.transformers": _ours("NeuronTrainer"),
    "optimum.neuron.training_args": _ours("NeuronTrainingArguments", "Seq2SeqNeuronTrainingArguments"),
    "optimum.neuron.utils": {
        **_AVAILABLE,
        "is_neuron_available": f"{_MACHINE}:is_neuron_available",
        "map_torch_dtype": f"{_MACHINE}:map_torch_dtype",
        **_hub_cache("get_hub_cached_entries", "get_hub_cached_models", "synchronize_hub_cache"),
        **_PACKAGES,
        "is_precompilation": f"{_MACHINE}:is_precompilation",
        **_PARSER,
        "DECODER_NAME": "optimum.neuron.utils.constant:DECODER_NAME",
        "ENCODER_NAME": "optimum.neuron.utils.constant:ENCODER_NAME",
        "NEURON_FILE_NAME": "optimum.neuron.utils.constant:NEURON_FILE_NAME",
        "replace_weights": "torch_neuronx:replace_weights",
        **{name: f"optimum.neuron.utils.constant:{name}" for name in _DIFFUSION_FOLDERS},
        **{name: f"optimum.neuron.utils._groups:{name}" for name in _ADAPTER_NAMES},
        **_absent("DTYPE_MAPPER", "NeuronArgumentParser", *_PATCHING_NAMES),
    },
    "optimum.neuron.utils.argument_utils": {
        **{name: f"optimum.neuron.utils._groups:{name}" for name in _ADAPTER_NAMES},
        **_absent("DTYPE_MAPPER"),
    },
    "optimum.neuron.utils.cache_utils": {
        "get_num_neuron_cores": f"{_MACHINE}:get_num_neuron_cores",
        **_of("utils._caches", *_CACHE_NAMES),
    },
    "optimum.neuron.utils.ecr": _absent("image_uri"),
    "optimum.neuron.utils.instance": _of(
        "utils._machine",
        *("align_compilation_target", "current_instance_type", "get_default_compilation_target"),
        "normalize_instance_type",
    ),
    "optimum.neuron.utils.misc": {
        **_of("utils._machine", "is_precompilation", "string_to_bool"),
        "is_main_worker": f"{_MACHINE}:is_logging_process",
        "replace_weights": "torch_neuronx:replace_weights",
    },
    "optimum.neuron.utils.patching": _absent(*_PATCHING_NAMES),
    "optimum.neuron.utils.peft_utils": _PEFT,
    "optimum.neuron.utils.system": {
        **_of("utils._machine", "cores_per_device", "get_instance_name", "get_neuron_devices_count"),
        "get_available_cores": f"{_MACHINE}:get_num_neuron_cores",
    },
    "optimum.neuron.utils.training_utils": {
        "is_logging_process": f"{_MACHINE}:is_logging_process",
        "is_main_worker": f"{_MACHINE}:is_logging_process",
        "is_main_worker_for_metrics": f"{_MACHINE}:is_logging_process",
        "is_precompilation": f"{_MACHINE}:is_precompilation",
        **_absent("patch_generation_mixin_to_neuron_generation_mixin"),
    },
    "optimum.neuron.utils.version_utils": {"get_neuronxcc_version": f"{_MACHINE}:get_neuronxcc_version"},
    "optimum.neuron.version": {
        "__version__": "optimum_neuron:__version__",
        "__sdk_version__": "optimum_neuron.version:__version__",
    },
    "optimum.neuron.vllm": _absent("OptimumNeuronPlatform", "OptimumNeuronWorker"),
    "optimum.exporters.neuron": {
        "main_export": "optimum.exporters.neuron._export:main_export",
        **_CONVERSIONS,
        **_absent(*_DIFFUSION_EXPORTS),
        "get_submodels_and_neuron_configs": "optimum.exporters.neuron._convert:get_submodels_and_neuron_configs",
        **_export_configs("NeuronDefaultConfig"),
    },
    "optimum.exporters.neuron.convert": _CONVERSIONS,
    "optimum.exporters.neuron.base": _export_configs("NeuronDefaultConfig", "NeuronExportConfig"),
    "optimum.exporters.neuron.config": _EXPORT_CONFIGS,
    "optimum.exporters.neuron.model_configs": {
        ON_IMPORT: "optimum.exporters.neuron._configs:register_architectures",
        **_EXPORT_CONFIGS,
        **_export_configs("NeuronDefaultConfig", "register_in_tasks_manager"),
    },
}
