"""What the options of NxD Training are here: arguments of `NeuronTrainingArguments`, and of `estimate_training`.

`estimate_options` reads what `neuronx_distributed_config` returns, too. `unused` names the options without effect.

    arguments = training_options(read_given("hf_llama3_8B_config.yaml"), num_processes=128)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import ConfigError, invalid_choice, nearest, raise_together
from .configuration import Given

_SECTIONS = {
    "": "name model_source seed compiler_flags compiler_cache_url aync_exec_max_inflight_requests "
    "bucket_size_collectives neuron_rt_exec_timeout neuron_experimental_compress_rg",
    "trainer.": "devices num_nodes max_epochs max_steps log_every_n_steps val_check_interval check_val_every_n_epoch "
    "num_sanity_val_steps limit_val_batches limit_test_batches gradient_clip_val lnc sequential_move_factor",
    "exp_manager.": "log_local_rank_0_only create_tensorboard_logger explicit_log_dir exp_dir name resume_if_exists "
    "resume_ignore_no_checkpoint create_checkpoint_callback log_parameter_norm log_gradient_norm save_xser load_xser "
    "enable_recovery_time_instrumentation save_bf16 async_checkpointing resume_from_checkpoint ckpt_ptl_version",
    "exp_manager.checkpoint_callback_params.": "monitor save_top_k mode save_last filename model_parallel_size "
    "every_n_train_steps use_master_weights_in_ckpt",
    "distributed_strategy.": "tensor_model_parallel_size pipeline_model_parallel_size zero1 sequence_parallel "
    "virtual_pipeline_model_parallel_size context_parallel_size expert_model_parallel_size kv_replicator "
    "token_shuffle_group_size",
    "data.": "micro_batch_size global_batch_size train_dir val_dir test_dir seq_length dev_choose_samples packing "
    "tokenizer data_prefix data_impl dataloader_type splits_string index_mapping_dir num_workers reset_position_ids "
    "reset_attention_mask eod_mask_loss skip_warmup validation_drop_last pad_samples_to_global_batch_size "
    "no_seqlen_plus_one_input_tokens use_sft_style_data_module",
    "data.tokenizer.": "type library model vocab_file merge_file delimiter sentencepiece_legacy use_fast",
    "model.": "model_config encoder_seq_length max_position_embeddings num_layers hidden_size rope_theta qkv_linear "
    "fuse_qkv transpose_nki_inputs pipeline_cuts use_cpu_initialization weight_init_only do_layer_norm_weight_decay "
    "activations_checkpoint_granularity activations_checkpoint_recompute ffn_hidden_size num_attention_heads "
    "num_kv_heads kv_channels init_method_std use_scaled_init_method hidden_dropout attention_dropout ffn_dropout "
    "apply_query_key_layer_scaling normalization layernorm_epsilon make_vocab_size_divisible_by persist_layer_norm "
    "share_embeddings_and_output_weights position_embedding_type rotary_percentage activation has_bias "
    "transformer_block_type sliding_window_size fp32_grads_cc",
    "model.fusions.": "softmax flash_attention ring_attention transpose_nki_inputs",
    "model.moe.": "num_experts top_k routing_algorithm router_aux_loss_coef output_router_logits capacity_factor "
    "normalize_top_k_affinities frequency dropout dropless sinkhorn_tol sinkhorn_iterations router_activation",
    "model.optim.": "name lr weight_decay capturable betas",
    "model.optim.sched.": "name warmup_steps max_steps constant_steps min_lr",
    "model_alignment_strategy.sft.": "packing",
    "model_alignment_strategy.dpo.": "kl_beta loss_type max_prompt_length precompute_ref_log_probs truncation_mode",
    "model_alignment_strategy.orpo.": "beta max_prompt_length truncation_mode",
    "model_alignment_strategy.peft.": "lora_rank lora_alpha lora_dropout lora_bias lora_verbose target_modules "
    "load_lora_from_ckpt save_lora_base merge_lora save_lora_config_adapter merge_sharded_lora",
    "precision.": "type master_weights fp32_grad_acc xla_use_bf16 xla_downcast_bf16 neuron_rt_stochastic_rounding_en "
    "parallel_layers_reduce_dtype fp32_grads_cc",
}
_KEYS = {prefix + key for prefix, keys in _SECTIONS.items() for key in keys.split()}
_NXD = (
    *("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size", "context_parallel_size", "pad_model"),
    *("lnc_size", "sequence_parallel", "sequential_move_factor"),
)
_NXD_SECTIONS = (
    *("pipeline_config", "optimizer_config", "activation_checkpoint_config", "model_init_config", "lora_config"),
    "mixed_precision_config",
)
_FIELDS = {
    "seed": "seed",
    "trainer.max_steps": "max_steps",
    "trainer.log_every_n_steps": "logging_steps",
    "trainer.gradient_clip_val": "max_grad_norm",
    "exp_manager.checkpoint_callback_params.every_n_train_steps": "save_steps",
    "distributed_strategy.tensor_model_parallel_size": "tensor_parallel_size",
    "distributed_strategy.pipeline_model_parallel_size": "pipeline_parallel_size",
    "distributed_strategy.context_parallel_size": "context_parallel_size",
    "distributed_strategy.zero1": "zero_1",
    "model.optim.lr": "learning_rate",
    "model.optim.weight_decay": "weight_decay",
    "model.optim.sched.warmup_steps": "warmup_steps",
}
"""Options that are fields of `NeuronTrainingArguments` under other names."""
_OPTIMIZERS = {
    **{name: "adamw_torch" for name in ("adamw", "adamw_fp32OptState")},
    **{name: name for name in ("adafactor", "adagrad", "rmsprop", "sgd")},
}
_SCHEDULERS = {"LinearAnnealingWithWarmUp": "linear", "CosineAnnealing": "cosine_with_min_lr"}
_PRECISIONS: dict[str, tuple[bool, bool, bool]] = {  # weights of 16 bits, float32 masters, stochastic rounding
    "fp32": (False, False, False), "autocast": (False, False, False), "bf16SR": (True, False, True),
    "mixed_precision": (True, True, False), "mixed_precisionSR": (True, True, True),
}  # fmt: skip


def unused(given: Given, *, extra: Sequence[str] = ()) -> list[str]:
    """Return the keys that were not taken. A key that NxD does not have is an error."""
    rest, problems = given.rest(), []
    sections = {prefix.removesuffix(".") for prefix in _SECTIONS} if not extra else set(_NXD_SECTIONS)
    known = set(extra) or _KEYS
    for key in rest:
        if key not in known and key not in sections and not (extra and key.split(".")[0] in _NXD_SECTIONS):
            message = f"{given.name} has the unknown key {key!r}{nearest(key, known) or '.'}"
            problems.append(ConfigError(message, hint="Correct or remove it.", key=key))
    raise_together(problems)
    return rest


def _sizes(given: Given) -> tuple[int, int, int]:
    """Degrees of tensor, pipeline, and context parallelism; others have no counterpart."""
    section = "distributed_strategy."
    for key, hint in (
        ("virtual_pipeline_model_parallel_size", "Set 1: the schedule is 1F1B with one stage a process."),
        ("expert_model_parallel_size", "Set 1: tensor parallelism divides experts."),
    ):
        if int(given.take(section + key, 1)) > 1:
            raise given.wrong(section + key, hint)
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    tensor, pipeline, context = (int(given.take(section + name, 1)) for name in names)
    return tensor, pipeline, context


def _precision(given: Given) -> dict[str, Any]:
    """Fields of the training arguments, and `dtype` of the model."""
    kind = given.take("precision.type", "fp32")
    is_manual = kind == "manual"
    if is_manual:
        is_narrow = any(str(given.take(f"precision.xla_{name}_bf16", 0)) == "1" for name in ("use", "downcast"))
        rounds = str(given.take("precision.neuron_rt_stochastic_rounding_en", 0)) == "1"
        chosen = is_narrow, bool(given.take("precision.master_weights", False)), rounds
    elif kind in _PRECISIONS:
        chosen = _PRECISIONS[kind]
    else:
        raise invalid_choice("precision.type", kind, [*_PRECISIONS, "manual"])
    return {
        "dtype": "bfloat16" if chosen[0] else "float32",
        "bf16": kind == "autocast",
        "optimizer_use_master_weights": chosen[1],
        "optimizer_use_fp32_grad_acc": bool(given.take("precision.fp32_grad_acc", False)) if is_manual else chosen[1],
        "stochastic_rounding_enabled": chosen[2],
    }


def estimate_options(given: Given) -> tuple[dict[str, Any], list[str]]:
    """Return arguments of `estimate_training`, and the keys without effect on an estimate.

    Args:
        given: a configuration of NxD Training, or what `neuronx_distributed_config` returns.

    Raises:
        ConfigError: a key is unknown, or has a value that estimates do not have.
    """
    if not given.has("distributed_strategy"):
        return _estimate_of_nxd(given)
    tensor, pipeline, context = _sizes(given)
    if context > 1:
        raise given.wrong("distributed_strategy.context_parallel_size", "Set 1: estimates have no times for it.")
    precision = _precision(given)
    length = given.take("data.seq_length", given.take("model.encoder_seq_length"))
    options = {
        "num_instances": given.take("trainer.num_nodes", 1),
        "sequence_length": length,
        "batch_size": given.take("data.global_batch_size"),
        "micro_batch_size": given.take("data.micro_batch_size", 1),
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "zero_1": bool(given.take("distributed_strategy.zero1", False)),
        "gradient_checkpointing": given.take("model.activations_checkpoint_granularity") is not None,
        "optimizer_use_master_weights": precision["optimizer_use_master_weights"],
    }
    return {name: value for name, value in options.items() if value is not None}, unused(given)


def _estimate_of_nxd(given: Given) -> tuple[dict[str, Any], list[str]]:
    for key in ("expert_parallel_size", "context_parallel_size"):
        if int(given.take(key, 1)) > 1:
            raise given.wrong(key, "Set 1: estimates have no times for it.")
    zero = bool(given.take("optimizer_config.zero_one_enabled", False))
    options = {
        "tensor_parallel_size": int(given.take("tensor_parallel_size", 1)),
        "pipeline_parallel_size": int(given.take("pipeline_parallel_size", 1)),
        "zero_1": zero,
        "gradient_checkpointing": given.take("activation_checkpoint_config") is not None,
        "optimizer_use_master_weights": bool(given.take("mixed_precision_config.use_master_weights", zero)),
    }
    return options, unused(given, extra=(*_NXD, *_NXD_SECTIONS))


def training_options(given: Given, num_processes: int) -> dict[str, Any]:
    """Return fields of `NeuronTrainingArguments`, with `dtype` of the model.

    Args:
        given: a configuration of NxD Training.
        num_processes: processes of the run.

    Raises:
        ConfigError: a value has no counterpart, or the processes cannot be divided as it says.
    """
    tensor, pipeline, context = _sizes(given)
    expected = int(given.take("trainer.devices", num_processes)) * int(given.take("trainer.num_nodes", 1))
    if expected != num_processes or expected % (tensor * pipeline * context):
        message = f"{given.name} is for {expected} processes, a multiple of {tensor * pipeline * context} (tensor, "
        message += f"pipeline, and context parallelism), and {num_processes} run."
        hint = "Start trainer.devices processes on each node (torchrun --nproc_per_node), or change it."
        raise ConfigError(message, hint=hint, expected=expected, num_processes=num_processes)
    micro, replicas = int(given.take("data.micro_batch_size", 1)), num_processes // (tensor * pipeline * context)
    steps, rest = divmod(int(given.take("data.global_batch_size", micro * replicas)), micro * replicas)
    if rest or not steps:
        raise given.wrong(
            "data.global_batch_size", f"Set a multiple of {micro * replicas}, the batch of all processes."
        )
    fields = {field: given.take(key) for key, field in _FIELDS.items()}
    betas = given.take("model.optim.betas", (0.9, 0.999))
    scheduler, optimizer = given.take("model.optim.sched.name"), given.take("model.optim.name", "adamw")
    for key, value, choices in (
        ("model.optim.name", optimizer, _OPTIMIZERS),
        ("model.optim.sched.name", scheduler or "LinearAnnealingWithWarmUp", _SCHEDULERS),
    ):
        if value not in choices:
            raise invalid_choice(key, value, choices)
    if given.take("model.optim.sched.constant_steps", 0):
        raise given.wrong("model.optim.sched.constant_steps", "Set 0.")
    last = given.take("model.optim.sched.max_steps", fields["max_steps"])
    if last != fields["max_steps"]:
        raise given.wrong(
            "model.optim.sched.max_steps", "Set ${trainer.max_steps}: the learning rate ends with the run."
        )
    if scheduler == "CosineAnnealing":
        fields |= {"lr_scheduler_kwargs": {"min_lr": given.take("model.optim.sched.min_lr", 0.0)}}
    callback, is_saved = "exp_manager.checkpoint_callback_params.", given.take("exp_manager.create_checkpoint_callback")
    kept = given.take(f"{callback}save_top_k", -1) if is_saved else 0
    is_recomputed = given.take("model.activations_checkpoint_granularity") == "full"
    folder = given.take("exp_manager.exp_dir", "nemo_experiments"), given.take("exp_manager.name", "default")
    return {
        **{field: value for field, value in fields.items() if value is not None},
        "output_dir": given.take("exp_manager.explicit_log_dir", "/".join(folder)),
        "num_train_epochs": max(given.take("trainer.max_epochs", 1), 1),
        "optim": _OPTIMIZERS[optimizer],
        "lr_scheduler_type": _SCHEDULERS[scheduler] if scheduler else "constant",
        "adam_beta1": betas[0],
        "adam_beta2": betas[1],
        "save_strategy": "steps" if kept else "no",
        "save_total_limit": kept if kept > 0 else None,
        **({"gradient_checkpointing": True} if is_recomputed else {}),
        "sequence_parallel": bool(given.take("distributed_strategy.sequence_parallel", False)) and tensor > 1,
        "per_device_train_batch_size": micro if pipeline == 1 else micro * steps,
        "gradient_accumulation_steps": steps if pipeline == 1 else 1,
        "pipeline_parallel_num_microbatches": steps if pipeline > 1 else -1,
        **_precision(given),
    }
