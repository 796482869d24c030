"""Names of `neuronx_distributed` for traced and quantized models, see `__init__.py`."""

from optimum_neuron.base.doors import OTHERS, Missing, Names

_ROOT = "optimum_neuron.neuronx_distributed"


def of(module: str, *names: str, **renamed: str) -> dict[str, str]:
    """Names of a module here, and the vendor's names of others."""
    both = {**dict.fromkeys(names), **renamed}
    return {name: f"{_ROOT}.{module}:{target or name}" for name, target in both.items()}


_V2 = of("model_builder", "ModelBuilder")
_MODEL = of("nxd_model", "NxDModel", BaseNxDModel="NxDModel")
_PARALLEL = of("parallel_trace", "parallel_model_load", "parallel_model_save", "parallel_model_trace")
_SHARD = of("sharding", "shard_checkpoint")
_STATE = of("simulated", "NxDParallelState")
_V1 = of("model_builder_v1", "BaseModelInstance", "ModelBuilder")
_SCRIPTS = Missing("Call NxDModel.save, whose file torch.jit.load reads.")

_QUANTIZED = of("quantized_layers", "QuantizedColumnParallel", "QuantizedRowParallel")
_CONVERT = {
    **of("quantized_layers", "convert"),
    **of("quantization", "get_default_custom_qconfig_dict"),
}
_ATTENTION = of("attention", "nki_flash_attn_func")
_LOSS = of("mixture", "load_balancing_loss_func")
_OF_SHARDS = of("moe_options", "BlockShardStrategy")
_MIXTURE = {
    **of("expert_layers", "ACT2FN"),
    **of("experts", "ExpertMLPs", "ExpertMLPsV2"),
    **of("mixture", "MoE"),
    **_LOSS,
    **of("routers", "GroupLimitedRouter", "RouterSinkhorn", "RouterTopK"),
    **of("shared_experts", "SharedExperts"),
}
_CAPTURE = of(
    "tensor_capture",
    *("disable_tensor_capture", "enable_tensor_capture", "get_available_modules", "get_captured_tensors_dict"),
    "register_tensor",
)
_NO_SCALES = Missing("Use QuantizedColumnParallel and QuantizedRowParallel, with a scale for each tensor or channel.")

TOP = {
    **_V2,
    **_MODEL,
    **_SHARD,
    **_STATE,
    "TorchScriptNxDModel": _SCRIPTS,
    "convert_nxd_model_to_torchscript_model": _SCRIPTS,
}
"""Names of the package itself."""

NAMES: Names = {
    "neuronx_distributed.kernels": _ATTENTION,
    "neuronx_distributed.kernels.flash_attn": _ATTENTION,
    "neuronx_distributed.modules.moe": _MIXTURE,
    "neuronx_distributed.modules.moe.blockwise": {
        **_OF_SHARDS,
        OTHERS: Missing("Use ExpertMLPs, which multiplies the tokens of each expert."),
    },
    "neuronx_distributed.modules.moe.expert_mlps": {"ExpertMLPs": _MIXTURE["ExpertMLPs"]},
    "neuronx_distributed.modules.moe.expert_mlps_v2": {"ExpertMLPsV2": _MIXTURE["ExpertMLPsV2"]},
    "neuronx_distributed.modules.moe.loss_function": _LOSS,
    "neuronx_distributed.modules.moe.model": {"MoE": _MIXTURE["MoE"]},
    "neuronx_distributed.modules.moe.model_utils": {
        "ACT2FN": _MIXTURE["ACT2FN"],
        **of("moe_options", "DEFAULT_BLOCK_SIZE", "GLUType"),
    },
    "neuronx_distributed.modules.moe.moe_configs": {
        **_OF_SHARDS,
        **of("moe_options", "BlockwiseMatmulConfig", "RoutedExpertsMLPOpsConfig", "RouterConfig"),
        "MoEFusedTKGConfig": Missing("Use MoE, which also computes single tokens."),
    },
    "neuronx_distributed.modules.moe.moe_config_validator": of("moe_validator", "MoeConfigValidator"),
    "neuronx_distributed.modules.moe.moe_parallel_layers": of(
        "expert_layers", "ExpertFusedColumnParallelLinear", "ExpertFusedRowParallelLinear"
    ),
    "neuronx_distributed.modules.moe.token_shuffling": of("token_shuffling", "token_shuffle", "token_unshuffle"),
    "neuronx_distributed.modules.moe.routing": {
        name: _MIXTURE[name] for name in ("GroupLimitedRouter", "RouterSinkhorn", "RouterTopK")
    },
    "neuronx_distributed.modules.moe.shared_experts": {"SharedExperts": _MIXTURE["SharedExperts"]},
    "neuronx_distributed.operators": {},
    "neuronx_distributed.operators.argmax": of("operators", "argmax"),
    "neuronx_distributed.operators.topk": of("operators", "topk"),
    "neuronx_distributed.quantization": {},
    "neuronx_distributed.quantization.dequantize": {
        **of("quantization", "blockwise_scale_dequantize", "direct_cast_dequantize", "scale_dequantize"),
        **of("quantization", get_broadcastable_shapes_for_blockwise_scale_dequantize="block_shapes"),
    },
    "neuronx_distributed.quantization.microscaling": {},
    "neuronx_distributed.quantization.microscaling.transform_weights": {
        **of("microscaling", "FP4_VALUES", "apply_lut_byte_4bit_tensor", "dequant_byte_4bit_tensor"),
        **of("microscaling", "get_mxfp4_tensor", "get_mxfp4_tensor_from_uint16", "get_mxfp8_tensor_from_uint32"),
        **of("microscaling", "pack_byte_4bit_tensor", "pack_fp4_x4_uint16", "split_byte_4bit_tensor", "split_gate_up"),
        OTHERS: Missing("Export decoders: their experts compute in mxfp4."),
    },
    "neuronx_distributed.quantization.observer": of("observer", "PerChannelAbsMaxObserver"),
    "neuronx_distributed.quantization.quantization_config": {
        **of("quantization", "ActivationQuantizationType", "QuantizationType", "QuantizedDtype", "ScaleDtype"),
        "DtypeBound": Missing("Use torch.finfo; the largest number of float8_e4m3 on a core is 240."),
        **of("quantization", "get_default_custom_qconfig_dict", "get_default_per_channel_custom_qconfig_dict"),
        **dict.fromkeys(
            ("get_default_blockwise_custom_qconfig_dict", "get_default_expert_wise_per_channel_custom_qconfig_dict"),
            _NO_SCALES,
        ),
    },
    "neuronx_distributed.quantization.quantization_layers": {
        **_QUANTIZED,
        **dict.fromkeys(("QuantizedExpertFusedColumnParallel", "QuantizedExpertFusedRowParallel"), _NO_SCALES),
    },
    "neuronx_distributed.quantization.quantization_mappings": of(
        "quantized_layers", "get_default_quant_module_mappings"
    ),
    "neuronx_distributed.quantization.quantization_utils": of(
        "quantization",
        *("convert_qint8_to_int8_state_dict", "extract_q_scale", "quantize_fp8_per_channel"),
        *("quantize_fp8_per_tensor", "quantize_per_channel_symmetric", "quantize_per_tensor_symmetric"),
        *("quantize_pytorch_model_per_channel_symmetric", "quantize_pytorch_model_per_tensor_symmetric"),
    ),
    "neuronx_distributed.quantization.quantize": _CONVERT,
    "neuronx_distributed.trace": {
        **_PARALLEL,
        **_MODEL,
        **_SHARD,
        **_STATE,
        **_V1,
        "model_builder": "neuronx_distributed.trace.model_builder:",
        "nxd_model": "neuronx_distributed.trace.nxd_model:",
    },
    "neuronx_distributed.trace.functions": {
        **_SHARD,
        **of("compiles", "compile", "compile_layout_transformer", "compile_wlo"),
        **of("compiles", append_default_compiler_flags="default_flags"),
        **of("traces", "trace"),
    },
    "neuronx_distributed.trace.hlo_utils": of(
        "compiles", apply_layout_transformation="keep_layouts", mark_weights_for_wlo="keep_layouts"
    ),
    "neuronx_distributed.trace.mock_torchdist": of("simulated", "mock_distributed"),
    "neuronx_distributed.trace.model_builder": {**_V1, **_SHARD},
    "neuronx_distributed.trace.model_builder_utils": {
        **of("compiles", "CompilationArtifacts", "LayoutTransformerArtifacts", "ModelBuilderConstants"),
        **of("compiles", "WLOArtifacts", "generate_key"),
        **of("traces", "ModelParamInfo", "ProvidedArgInfo", "TraceArtifacts"),
    },
    "neuronx_distributed.trace.model_builder_v2": _V2,
    "neuronx_distributed.trace.nxd_model": _MODEL,
    "neuronx_distributed.trace.nxd_model.base_nxd_model": _MODEL,
    "neuronx_distributed.trace.nxd_model.nxd_model": _MODEL,
    "neuronx_distributed.trace.parallel_context": _STATE,
    "neuronx_distributed.trace.trace": {**_PARALLEL, **of("sharding", "invoke_preshard_hook")},
    "neuronx_distributed.utils.tensor_capture": _CAPTURE,
    "neuronx_distributed.utils.tensor_capture.api": _CAPTURE,
    "neuronx_distributed.utils.tensor_capture.model_modification": {
        **of("tensor_capture", "restore_model", find_available_modules="get_available_modules"),
        **of("tensor_capture", modify_model_for_tensor_capture="enable_tensor_capture"),
        "modify_hf_eager_model_for_tensor_capture": Missing("Use enable_tensor_capture, and save the tensors."),
    },
    "neuronx_distributed.utils.tensor_capture.registry": of("tensor_capture", "CapturedModelInfo", "TensorRegistry"),
}
