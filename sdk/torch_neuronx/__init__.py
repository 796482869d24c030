"""`torch_neuronx`, the vendor's name for traced models, as a front door to `optimum_neuron.tracing`.

Importing it registers the operators that a saved model needs, so that `torch.jit.load` works afterwards, and classes
that libraries name in annotations; everything else is looked up on first use. Its other modules have no files. It
refuses to be imported if the vendor's `torch-neuronx` is installed, because both own this file and the last one
installed has overwritten the other.

    import torch_neuronx
    model = torch.jit.load("bert.pt")
"""

from __future__ import annotations

import importlib

from optimum_neuron.base.doors import ON_IMPORT, OTHERS, Missing, Names, open_doors
from optimum_neuron.base.vendor import refuse_beside

refuse_beside("torch-neuronx", __name__)
importlib.import_module("optimum_neuron.tracing.ops")
importlib.import_module("optimum_neuron.tracing.script_classes")


def _tracing(*names: str) -> dict[str, str]:
    return {name: f"optimum_neuron.tracing:{name}" for name in names}


_PLACEMENT = _tracing("multicore_context", "neuron_cores_context", "set_multicore", "set_neuron_cores")
_KERNELS = {name: f"optimum_neuron.nki:{name}" for name in ("nki_op", "wrap_nki")}
_COMPARISONS = _tracing("assert_close", "neuron_allclose")
_MODULES = (
    *("contexts", "distributed", "experimental", "nki_hop", "parallel_compile", "profiling", "proto", "pyhlo"),
    *("testing", "utils", "xla_impl"),
)
_PROGRAMS = "Programs are NEFF files of this compiler: trace with `torch_neuronx.trace`."
_NO_CPP = Missing("Write the operator as an NKI kernel: `torch_neuronx.nki_op`.")
_NO_SHARDING = Missing("Use `torch.distributed.fsdp.fully_shard` on device neuron, or `ZeroRedundancyOptimizer`.")


def _missing(*names: str) -> dict[str, str]:
    """Names that libraries import, and use only where they build programs of HLO."""
    return {name: Missing(_PROGRAMS) for name in names}


NAMES: Names = {
    "torch_neuronx": {
        **_PLACEMENT,
        **_KERNELS,
        **_tracing("BucketModelConfig", "DataParallel", "PartitionerConfig", "analyze", "async_load"),
        **_tracing("bucket_model_trace", "dynamic_batch", "lazy_load", "move_trace_to_device", "replace_weights"),
        **_tracing("trace"),
        "nki_jit": "optimum_neuron.nki.legacy:jit",
        **{name: f"torch:neuron.{name}" for name in ("Stream", "stream", "synchronize")},
        **{name: f"torch_neuronx.{name}:" for name in _MODULES},
        "__version__": "optimum_neuron.tracing:NAMES_RELEASE",
        "nki": "nki:",
    },
    "torch_neuronx.contexts": _tracing("disable_nrt_load", "multicore_context", "neuron_cores_context"),
    # Imported for its side effect, the backend "xla" of torch.distributed.
    "torch_neuronx.distributed": {ON_IMPORT: "optimum_neuron.xla.process_groups:register"},
    "torch_neuronx.distributed.fsdp_mics": {OTHERS: _NO_SHARDING},
    "torch_neuronx.experimental": {**_PLACEMENT, "profiler": "torch_neuronx.experimental.profiler:"},
    "torch_neuronx.experimental.profiler": _tracing("profile"),
    "torch_neuronx.experimental.profiler.v2_x": {},
    "torch_neuronx.experimental.profiler.v2_x.custom_op_name": _missing("hlo_debug"),
    "torch_neuronx.nki_hop": _KERNELS,
    "torch_neuronx.parallel_compile": {
        "neuron_parallel_compile": "optimum_neuron.tools.parallel_compile:",
        OTHERS: Missing("Run `neuron_parallel_compile python train.py`."),
    },
    "torch_neuronx.profiling": _tracing("NeuronConfig", "NeuronProfiler", "ProfileMode"),
    "torch_neuronx.testing": {**_COMPARISONS, "validation": "torch_neuronx.testing.validation:"},
    "torch_neuronx.testing.validation": {**_COMPARISONS, **_tracing("custom_allclose")},
    "torch_neuronx.proto": {},
    "torch_neuronx.proto.metaneff_pb2": _tracing("MetaNeff", "MetaTensor"),
    "torch_neuronx.pyhlo": {},
    "torch_neuronx.pyhlo.hlo_pb2": _missing(
        *("HloComputationProto", "HloInputOutputAliasProto", "HloInstructionProto", "HloModuleProto", "Kind")
    ),
    "torch_neuronx.pyhlo.xla_data_pb2": _missing("ShapeProto"),
    "torch_neuronx.utils": _tracing("get_platform_target"),
    "torch_neuronx.utils.utils": _tracing("SUPPORTED_TYPES", "get_platform_target"),
    "torch_neuronx.xla_impl": {
        name: f"torch_neuronx.xla_impl.{name}:" for name in ("custom_op", "data_parallel", "ops", "structure", "trace")
    },
    "torch_neuronx.xla_impl.base": {"xla_call": Missing("Write the operator in torch, or as an NKI kernel.")},
    "torch_neuronx.xla_impl.bucket_trace": {"create_bucket_model": Missing("Use `bucket_model_trace`.")},
    "torch_neuronx.xla_impl.custom_op": {OTHERS: _NO_CPP},
    "torch_neuronx.xla_impl.data_parallel": _tracing("DataParallel"),
    "torch_neuronx.xla_impl.ops": {
        **_tracing("Argmax", "Softmax", "TopK"),
        "nki_jit": "optimum_neuron.nki.legacy:jit",
        OTHERS: Missing("Call torch's operator."),
    },
    "torch_neuronx.xla_impl.structure": _missing("Flattener", "Packer"),
    "torch_neuronx.xla_impl.torchscript": _tracing("replace_weights"),
    "torch_neuronx.xla_impl.trace": _tracing("trace")
    | _missing(
        *("HloArtifacts", "NeffArtifacts", "XLA_DTYPE_TO_METANEFF_DTYPE", "create_neuron_model", "generate_hlo"),
        *("generate_neff", "get_hlo_computation_by_id", "get_hlo_root_instruction", "get_torch_dtype"),
        *("hlo_entry_computation", "hlo_compile", "setup_compiler_dirs"),
    ),
}

__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
