"""Keywords of NxD Inference's `NeuronConfig` with their defaults. It does not know what they do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..options.value_types import COUNT, NUMBER

DERIVED: Mapping[str, str] = {
    **dict.fromkeys(("n_active_tokens", "n_positions", "max_context_length", "max_length", "pa_block_size"), "seq_len"),
    **dict.fromkeys(("ctx_batch_size", "tkg_batch_size", "max_batch_size", "kv_cache_batch_size"), "batch_size"),
    **dict.fromkeys(("spec_batch_size", "pa_num_blocks"), "batch_size"),
    "local_ranks_size": "world_size",
}
"""Keywords whose default is the value of another."""

COMPUTED = (
    *("torch_dtype", "max_new_tokens", "world_size", "buckets", "logical_nc_config", "lm_head_pad"),
    *("scratchpad_page_size", "overrides_torch_dtype"),
)
"""Keywords whose default is computed by `NeuronConfig`."""

_NUMBERS = {
    **dict.fromkeys(("batch_size", "tp_degree", "cp_degree", "mlp_cp_degree", "attention_dp_degree"), 1),
    **dict.fromkeys(("pp_degree", "ep_degree", "lm_head_pad_alignment_size"), 1),
    **dict.fromkeys(("kv_cache_padding_size", "speculation_length", "medusa_speculation_length"), 0),
    **dict.fromkeys(("num_medusa_heads", "start_rank_id"), 0),
    "seq_len": 128,
    "weight_gather_seq_len_threshold": 32768,
    "cc_pipeline_tiling_factor": 2,
    "seq_len_threshold_for_cc_tiling": 16384,
    "quantize_clamp_bound": math.inf,
}
_NAMES = {
    "padding_side": "right",
    "cast_type": "config",
    "attn_cls": "NeuronLlamaAttention",
    "quantization_type": "per_tensor_symmetric",
    "quantization_dtype": "int8",
    "quantization_scale_dtype": "f32",
    "ep_dispatch_cc_option": "AR_AG",
}
_NONE = (
    *("rpl_reduce_dtype", "attention_dtype", "on_device_sampling_config", "context_encoding_buckets"),
    *("prefix_buckets", "token_generation_buckets", "token_generation_batches", "quantized_checkpoints_path"),
    *("quantization_block_size", "quantization_block_axis", "modules_to_not_convert"),
    *("draft_model_modules_to_not_convert", "kv_quant_config", "token_tree_config", "medusa_tree"),
    *("windowed_context_encoding_size", "chunked_prefill_config", "tensor_replacement_config"),
    *("tensor_capture_config", "lora_config", "attn_kernel_enabled", "activation_quantization_type"),
    *("moe_fused_nki_kernel_enabled", "router_topk_nki_kernel_enabled", "expert_mlp_nki_kernel_enabled"),
    *("shared_mlp_nki_kernel_enabled", "target", "padded_hidden_size", "padded_intermediate_size", "dma_order_config"),
)
_FALSE = (
    *("allow_input_truncation", "on_cpu", "output_logits", "vocab_parallel", "enable_cte_modular_flow"),
    *("layer_boundary_markers", "fused_qkv", "sequence_parallel_enabled", "is_continuous_batching"),
    *("disable_argmax_kernel", "async_mode", "enable_bucketing", "bucket_n_active_tokens", "quantized"),
    *("is_mxfp4_compute", "is_full_model_shuffled", "kv_cache_quant", "enable_fused_speculation"),
    *("enable_eagle_speculation", "eagle_rolling_buffer_kernel_enabled", "is_eagle3", "is_eagle_draft"),
    *("enable_eagle_draft_input_norm", "is_medusa", "is_block_kv_layout", "is_prefix_caching"),
    *("save_sharded_checkpoint", "skip_sharding", "enable_ve_data_parallel", "qk_layernorm", "pre_rope_rmsnorm"),
    *("flash_decoding_enabled", "disable_kv_cache_tiling", "k_cache_transposed", "qkv_kernel_enabled"),
    *("strided_context_parallel_kernel_enabled", "qkv_nki_kernel_enabled", "qkv_cte_nki_kernel_fuse_rope"),
    *("qkv_kernel_nbsd_layout", "mlp_kernel_enabled", "mlp_tkg_nki_kernel_enabled", "fused_rmsnorm_skip_gamma"),
    *("mlp_kernel_fuse_residual_add", "qkv_kernel_fuse_residual_add", "quantized_mlp_kernel_enabled"),
    *("out_proj_kernel_enabled", "attn_tkg_nki_kernel_enabled", "attn_tkg_builtin_kernel_enabled"),
    *("attn_block_tkg_nki_kernel_enabled", "attn_block_tkg_nki_kernel_cache_update"),
    *("attn_block_tkg_nki_kernel_cascaded_attention", "attn_block_tkg_nki_kernel_disable_gpsimd_sb2sb"),
    *("attn_block_cte_nki_kernel_enabled", "rmsnorm_quantize_kernel_enabled", "enable_spill_reload_dge"),
    *("apply_seq_ids_mask", "skip_warmup", "enable_output_completion_notifications", "disable_numeric_cc_token"),
    "switch_cc",
)

DEFAULTS: Mapping[str, Any] = {
    **_NUMBERS,
    **_NAMES,
    **dict.fromkeys(_NONE),
    **dict.fromkeys(_FALSE, False),
    "attn_block_tkg_nki_kernel_use_online_softmax": True,
}
"""Keywords with a fixed default."""

LISTS = ("weights_to_skip_layout_optimization",)
"""Keywords whose default is an empty list."""

NAMES = (*DEFAULTS, *DERIVED, *COMPUTED, *LISTS)
"""Every keyword of `NeuronConfig`."""

OF_EXPERTS: Mapping[str, Any] = {
    "glu_mlp": True,
    "glu_type": "glu",
    "hidden_act_scaling_factor": 1.0,
    "hidden_act_bias": 0.0,
    "moe_tp_degree": 1,
    "moe_ep_degree": 1,
    **dict.fromkeys(("capacity_factor", "gate_clamp_upper_limit", "gate_clamp_lower_limit", "up_clamp_upper_limit")),
    **dict.fromkeys(("up_clamp_lower_limit", "hybrid_sharding_config")),
    **dict.fromkeys(("use_index_calc_kernel", "moe_mask_padded_tokens", "early_expert_affinity_modulation"), False),
    **dict.fromkeys(("fused_shared_experts", "shared_experts_sequence_parallel_enabled"), False),
    **dict.fromkeys(("return_expert_index", "return_router_logits", "transpose_shared_experts_weights"), False),
}
"""Keywords of `MoENeuronConfig` with a fixed default."""

_AT_LEAST_1 = (
    *("batch_size", "ctx_batch_size", "tkg_batch_size", "max_batch_size", "kv_cache_batch_size", "spec_batch_size"),
    *("seq_len", "n_active_tokens", "n_positions", "max_context_length", "max_length", "pa_num_blocks"),
    *("pa_block_size", "tp_degree", "cp_degree", "mlp_cp_degree", "attention_dp_degree", "pp_degree", "ep_degree"),
    *("moe_tp_degree", "moe_ep_degree", "world_size", "local_ranks_size", "windowed_context_encoding_size"),
    *("lm_head_pad_alignment_size", "cc_pipeline_tiling_factor", "scratchpad_page_size"),
)
_AT_LEAST_0 = (
    *("kv_cache_padding_size", "speculation_length", "medusa_speculation_length", "num_medusa_heads"),
    *("start_rank_id", "max_new_tokens", "weight_gather_seq_len_threshold", "seq_len_threshold_for_cc_tiling"),
    *("padded_hidden_size", "padded_intermediate_size"),
)
_TEXTS = (
    *("padding_side", "cast_type", "quantization_dtype", "quantization_scale_dtype", "ep_dispatch_cc_option"),
    *("target", "activation_quantization_type", "glu_type", "quantized_checkpoints_path"),
)
_SWITCHES = (
    *_FALSE,
    *(name for name in _NONE if name.endswith("_kernel_enabled")),
    "lm_head_pad",
    "overrides_torch_dtype",
)
TYPES: Mapping[str, Any] = {
    **dict.fromkeys(_AT_LEAST_1, COUNT),
    **dict.fromkeys(_AT_LEAST_0, NUMBER),
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys((*_SWITCHES, "attn_block_tkg_nki_kernel_use_online_softmax"), bool),
    **{name: type(value) for name, value in OF_EXPERTS.items() if isinstance(value, (bool, float))},
    **{name: float for name in OF_EXPERTS if name.endswith("_limit") or name == "capacity_factor"},
    **dict.fromkeys(("modules_to_not_convert", "draft_model_modules_to_not_convert", *LISTS), list[str]),
    "quantize_clamp_bound": float,
    **dict.fromkeys(("token_generation_batches", "quantization_block_size"), COUNT | list[COUNT]),
    "quantization_block_axis": NUMBER | list[NUMBER],
    "dma_order_config": dict[str, Any],
}
"""Types of keywords; a keyword without one may be anything, or has a check of its own."""


class Keywords:
    """Options by their names in the tables above; `NeuronConfig` sets them."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
