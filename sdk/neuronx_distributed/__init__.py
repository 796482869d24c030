"""`neuronx_distributed`, the vendor's library for distributed training, as a front door to
`optimum_neuron.neuronx_distributed`.

It refuses to be imported where the vendor's `neuronx-distributed` is installed, because both own this file. The
vendor's own package runs on this package's `torch_xla` and `torch_neuronx`.

    import neuronx_distributed as nxd
    from neuronx_distributed.parallel_layers import parallel_state
"""

import importlib

from optimum_neuron.base.doors import Missing, Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

from . import _inference, _missing

refuse_beside("neuronx-distributed", __name__)
importlib.import_module("optimum_neuron.neuronx_distributed.launching").begin()

_of = _inference.of


def _absent(alternative: str, *names: str) -> dict[str, str]:
    return {name: Missing(alternative) for name in names}


def _axis(name: str, kind: str, *, has_ends: bool = False) -> dict[str, str]:
    """Getters and setters of one way to divide ranks."""
    methods = {f"get_{name}_{method}": f"{kind}.{method}" for method in ("group", "size", "rank", "replica_groups")}
    methods |= {f"set_{name}_{method}": f"{kind}.set_{method}" for method in ("size", "rank")}
    ends = {f"get_{name}_{method}": f"{kind}.{method}" for method in ("src_rank", "next_rank", "prev_rank")}
    return _of("parallel_state", **methods, **(ends if has_ends else {}))


_STATE = {
    **_axis("tensor_model_parallel", "TENSOR", has_ends=True),
    **_axis("pipeline_model_parallel", "PIPELINE", has_ends=True),
    **_axis("context_model_parallel", "CONTEXT"),
    **_axis("data_parallel", "DATA", has_ends=True),
    **_axis("expert_model_parallel", "EXPERT"),
    **_axis("expert_data_parallel", "EXPERT_DATA"),
    **_of(
        "parallel_state",
        *("create_pg_with_ranks", "destroy_model_parallel", "gather_python_object"),
        "arrange_kv_groups",
        *("get_context_model_parallel_src_tgt_pairs", "get_rank_info_str", "get_zero1_sharding_groups"),
        *("initialize_kv_group", "initialize_model_parallel", "initialize_token_shuffle_group", "is_global_rank_zero"),
        *("get_aot_mode", "model_parallel_is_initialized", "rmsg", "set_aot_mode"),
        destroy_kv_group="KV_SHARED.clear",
        destroy_token_shuffle_group="TOKEN_SHUFFLE.clear",
        get_kv_shared_group="KV_SHARED.group",
        get_kv_shared_group_size="KV_SHARED.size",
        get_kv_shared_replica_groups="KV_SHARED.replica_groups",
        get_token_shuffle_group="TOKEN_SHUFFLE.group",
        get_token_shuffle_group_size="TOKEN_SHUFFLE.size",
        get_token_shuffle_replica_groups="TOKEN_SHUFFLE.replica_groups",
        get_world_group="WORLD.group",
    ),
    **_of("expert_ranks", "get_expert_parallel_rank_from_global_rank", "get_experts_for_expert_parallel_rank"),
}
_LAYERS = {
    **_of("layers", "BaseParallelLinear", "ColumnParallelLinear", "RowParallelLinear"),
    **_of("sharding", "SPMDRank"),
    **_of("parameters", _initialize_parameter_cpu="initialize_parameter"),
    **_of("convolution", "BaseParallelConv", "InputChannelParallelConv2d", "OutputChannelParallelConv2d"),
    **_of("embedding", "ParallelEmbedding"),
}
_REGIONS = _of(
    "mappings",
    *("copy_to_tensor_model_parallel_region", "gather_from_tensor_model_parallel_region"),
    *("reduce_from_tensor_model_parallel_region", "scatter_to_tensor_model_parallel_region"),
)
_MAPPINGS = {
    **_REGIONS,
    **_of(
        "mappings",
        *("gather_from_sequence_parallel_region", "gather_from_tensor_model_parallel_region_with_dim"),
        *("reduce_from_context_model_parallel_region", "reduce_scatter_to_sequence_parallel_region"),
        *("reduce_scatter_to_tensor_model_parallel_region_with_dim", "scatter_to_process_group_spmd"),
        "scatter_to_sequence_parallel_region",
    ),
    **_of(
        "along_dimensions",
        **{
            f"_{way}_along_{dim}": f"{way}_along_{dim}"
            for way in ("gather", "reduce_scatter", "split")
            for dim in ("dim", "first_dim", "last_dim")
        },
    ),
    **_of("expert_regions", "enter_expert_parallel_region", "exit_expert_parallel_region"),
}
_GRADS = _of(
    "grads",
    *("allreduce_context_parallel_gradients", "allreduce_sequence_parallel_gradients", "bucket_allreduce_gradients"),
    *("clip_grad_norm", "clip_grads_with_norm", "get_grad_norm"),
)
_LOSS = _of("loss_functions", "parallel_cross_entropy")
_RANDOM = _of("random_numbers", "get_xla_rng_tracker", "model_parallel_xla_manual_seed")
_FILES = _of("checkpointing", "load", "save")
_ATTRIBUTES = _of(
    "attributes",
    *("copy_tensor_model_parallel_attributes", "set_defaults_if_not_set_tensor_model_parallel_attributes"),
    "set_tensor_model_parallel_attributes",
)
_ARITHMETIC = _of(
    "arithmetic",
    *("EmbeddingUtility", "divide", "ensure_divisibility", "get_padding_length", "indices_split_along_dim"),
    *("split_tensor_along_dim", "split_tensor_along_last_dim", "split_tensor_along_second_dim"),
)
_UTILS = {
    **_ATTRIBUTES,
    **_ARITHMETIC,
    **_of("moving", "cast_all", "cast_if_autocast_enabled", "move_model_to_device", "verify_casted_dtype"),
    **_of("moving", move_all_tensor_to_cpu="to_cpu"),
    **_of(
        "launching",
        *("get_local_world_size", "is_pjrt_device", "is_torch_version_greater_than_2", "requires_init_pg_override"),
    ),
}
_CHECKPOINT = _of("checkpoint", "finalize_checkpoint", "has_checkpoint", "load_checkpoint", "save_checkpoint")
_HOOKS = _of("pipeline", "PostPartitionHooks", hooks="HOOKS")
_TRAINER = {
    **_CHECKPOINT,
    **_of("configuration", "initialize_parallel_model", "initialize_parallel_optimizer", "neuronx_distributed_config"),
    **_HOOKS,
}
_QKV = _of("qkv_linear", "GQAQKVColumnParallelLinear")
_PIPELINE = _of("pipeline", "NxDPPModel")
_TASKS = ("Preprocess", "Step", "Postprocess")
_SCHEDULES = {
    **_of("scheduler", *(f"{way}{kind}Task" for way in ("Forward", "Backward") for kind in _TASKS)),
    **_of("scheduler", "InferenceSchedule", "PipeSchedule", "PipelineTask", "ReduceGradsTask", "TrainSchedule"),
    **_of("scheduler", "TrainInterleavedSchedule"),
    **_of("scheduler", Train1F1BSchedule="TrainSchedule"),
}
_LORA = {**_of("lora_config", "LoraConfig"), **_of("lora", "LoraModel", "get_lora_model")}
_RING = _absent("Train with context parallelism in NeuronTrainer.", "nki_ring_attn_func")
_LIGHTNING = {
    "accelerator": _of("lightning", "NeuronXLAAccelerator"),
    "checkpoint_io": _of("lightning", "NeuronCheckpointIO"),
    "logger": _of("lightning_logs", "NeuronTensorBoardLogger"),
    "module": _of("lightning", "NeuronLTModule"),
    "neuron_hooks_callback": _absent("Use utils.tensor_capture.", "NeuronHooksCallback"),
    "precision_plugin": _of("lightning", "NeuronXLAPrecisionPlugin"),
    "progress_bar": _of("lightning_logs", "NeuronTQDMProgressBar"),
    "strategy": _of("lightning", "NeuronXLAStrategy"),
}
_ZERO = {
    **_of("zero", "NeuronEPZero1Optimizer", "NeuronZero1Optimizer"),
}
_MODULES = ("kernels", "modules", "optimizer", "parallel_layers", "pipeline", "trace", "trainer", "utils")

NAMES: Names = {
    "neuronx_distributed": {
        **_TRAINER,
        **_inference.TOP,
        **{name: f"neuronx_distributed.{name}:" for name in _MODULES},
        "__version__": "optimum_neuron.version:__version__",
    },
    "neuronx_distributed.kernels.ring_attention_kernel": _RING,
    "neuronx_distributed.lightning": {name: target for rows in _LIGHTNING.values() for name, target in rows.items()},
    **{f"neuronx_distributed.lightning.{name}": rows for name, rows in _LIGHTNING.items()},
    "neuronx_distributed.modules": {},
    "neuronx_distributed.modules.attention": {},
    "neuronx_distributed.modules.attention.utils": _of(
        "rotary", "apply_rotary_polar_compatible", "precompute_freqs_cis"
    ),
    "neuronx_distributed.modules.lora": _LORA,
    "neuronx_distributed.modules.lora.config": {"LoraConfig": _LORA["LoraConfig"]},
    "neuronx_distributed.modules.lora.model": {"LoraModel": _LORA["LoraModel"]},
    "neuronx_distributed.modules.qkv_linear": _QKV,
    "neuronx_distributed.modules.rms_norm": _of("norms", "RMSNorm"),
    "neuronx_distributed.optimizer": _ZERO,
    "neuronx_distributed.optimizer.zero_redundancy_optimizer": _ZERO,
    "neuronx_distributed.overrides": {},
    "neuronx_distributed.overrides.transformer_overrides": _of("rotary", "apply_rotary_pos_emb", "rotate_half"),
    "neuronx_distributed.parallel_layers": {
        **_LAYERS,
        **_REGIONS,
        **_LOSS,
        **_RANDOM,
        **_FILES,
        **_ATTRIBUTES,
        **{name: _GRADS[name] for name in ("clip_grad_norm",)},
        **{name: _UTILS[name] for name in ("move_model_to_device", "split_tensor_along_last_dim")},
        **{name: _STATE[name] for name in ("initialize_model_parallel",)},
        **{
            name: f"neuronx_distributed.parallel_layers.{name}:"
            for name in ("layers", "mappings", "parallel_state", "random", "utils")
        },
    },
    "neuronx_distributed.parallel_layers.checkpointing": {
        **_FILES,
        **_of("checkpointing", "get_sharded_model_dict"),
        **_of("sharding", _invoke_preshard_hook="invoke_preshard_hook"),
    },
    "neuronx_distributed.parallel_layers.grads": _GRADS,
    "neuronx_distributed.parallel_layers.layer_norm": _of("norms", "LayerNorm"),
    "neuronx_distributed.parallel_layers.layers": _LAYERS,
    "neuronx_distributed.parallel_layers.loss_functions": {
        **_LOSS,
        **_of("loss_functions", "from_parallel_logits_to_logprobs"),
    },
    "neuronx_distributed.parallel_layers.mappings": _MAPPINGS,
    "neuronx_distributed.parallel_layers.pad": _of(
        "padding", "generate_padding_mask", "get_number_of_extra_heads", "pad_model"
    ),
    "neuronx_distributed.parallel_layers.parallel_state": _STATE,
    "neuronx_distributed.parallel_layers.random": _RANDOM,
    "neuronx_distributed.parallel_layers.utils": _UTILS,
    "neuronx_distributed.pipeline": _PIPELINE,
    "neuronx_distributed.pipeline.model": {
        **_PIPELINE,
        "parallel_state": "neuronx_distributed.parallel_layers.parallel_state:",
    },
    "neuronx_distributed.pipeline.scheduler": _SCHEDULES,
    "neuronx_distributed.pipeline.timeline": _of("timeline", "PPTimeline"),
    "neuronx_distributed.pipeline.trace": {
        **_of("pipeline_trace", "get_concrete_args", "get_tracer_class", "trace_model"),
        **_of("pipeline_graph", HFTracerWrapper="Tracer", NxDTracer="Tracer", TorchTracerWrapper="Tracer"),
    },
    "neuronx_distributed.trainer": _TRAINER,
    "neuronx_distributed.trainer.checkpoint": _CHECKPOINT,
    "neuronx_distributed.trainer.model": _of("model", "NxDModel"),
    "neuronx_distributed.trainer.post_partition_hooks": _HOOKS,
    "neuronx_distributed.trainer.trainer": _TRAINER,
    "neuronx_distributed.trainer.optimizer": _of("optimizer", "NxDOptimizer"),
    "neuronx_distributed.utils": {
        **_of("parallel_state", "cpu_mode"),
        **_of("moving", "get_device", "mark_step"),
        **_of("launching", "master_print"),
        **_of("platforms", "HloMetadataLevel", "hardware"),
    },
    "neuronx_distributed.utils.activation_checkpoint": _of("activation_checkpoint", "apply_activation_checkpointing"),
    "neuronx_distributed.utils.adamw_fp32_optim_params": _of("adamw", "AdamW_FP32OptimParams"),
    "neuronx_distributed.utils.batch_utils": _of("batches", "get_batch_on_this_context_parallel_rank"),
    **_inference.NAMES,
    **_missing.NAMES,
    "neuronx_distributed.utils.logger": _of("logs", "get_log_level", "get_logger", _rank0_only="on_rank_zero"),
    "neuronx_distributed.utils.model_utils": {
        **_of("moving", "move_model_to_device"),
        **_of("sharding", "init_on_device"),
        **_of("launching", "get_local_world_size"),
        **_of("platforms", "LogicalNCConfig", "get_platform_lnc"),
    },
    "neuronx_distributed.utils.random": _of("random_numbers", "set_random_seed"),
    "neuronx_distributed.utils.serialization": {
        **_of("serialization", "SerializationManager", "TensorMeta"),
        **_absent("Send plain objects with torch.distributed.", "compress_to_string", "uncompress_from_string"),
    },
    "neuronx_distributed.utils.tensor_replacement": {},
    "neuronx_distributed.utils.tensor_replacement.model_modification": _of(
        "tensor_replacement", "modify_model_for_tensor_replacement", "patch_forward_with_additional_args"
    ),
    "neuronx_distributed.utils.tensor_replacement.registry": _of("tensor_replacement", "RuntimeRegister"),
    "neuronx_distributed.utils.tensor_utils": _of("arithmetic", "cumsum"),
    "neuronx_distributed.utils.timeline": _of("timeline", "Timeline"),
    "neuronx_distributed.utils.utils": _of("platforms", "HloMetadataLevel", "get_dict_from_json", "hardware"),
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
