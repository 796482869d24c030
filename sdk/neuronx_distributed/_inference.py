"""Names of `neuronx_distributed` for traced and quantized models, see `__init__.py`."""

from optimum_neuron.base.doors import Missing, Names

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

TOP = {
    **{name: _V2[name] for name in ("ModelBuilder",)},
    **_MODEL,
    **_SHARD,
    **_STATE,
    "TorchScriptNxDModel": _SCRIPTS,
    "convert_nxd_model_to_torchscript_model": _SCRIPTS,
}
"""Names of the package itself."""

NAMES: Names = {
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
    "neuronx_distributed.trace.trace": _PARALLEL,
}
