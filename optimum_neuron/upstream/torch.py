"""Private names of torch, apart from Inductor's, and what this package replaces in torch for the whole process.

from optimum_neuron.upstream.torch import FakeTensorMode
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .contract import Name, Patch, import_name

if TYPE_CHECKING:
    import torch
    from torch import fx

_NESTED = "Arguments and results of operators are nested."

NAMES = (
    Name(
        target="torch._subclasses.fake_tensor.FakeTensorMode",
        why="Models are captured and checked on tensors without data.",
        parameters=("allow_non_fake_inputs", "shape_env"),
    ),
    Name(
        target="torch._subclasses.fake_tensor.FakeTensor",
        why="Recording NKI programs and operators tells tensors with data from those without.",
    ),
    Name(
        target="torch._subclasses.fake_tensor.DataDependentOutputException",
        why="A model may catch the error of a decision that depends on values.",
    ),
    Name(target="torch._subclasses.fake_tensor.is_fake", why="A kernel that is traced has arguments without data."),
    Name(
        target="torch._subclasses.functional_tensor.FunctionalTensorMode",
        why="An NKI kernel in a traced graph is an operator without side effects.",
    ),
    Name(
        target="torch.utils._python_dispatch.TorchDispatchMode",
        why="Operators of a call are recorded and decomposed as they run.",
    ),
    Name(
        target="torch.utils._python_dispatch._disable_current_modes",
        why="Constants are computed with data while a graph is captured without.",
    ),
    Name(
        target="torch.testing._internal.distributed.fake_pg.FakeStore",
        why="A rank is traced in a process of its own, with groups of ranks that nobody started.",
    ),
    Name(
        target="torch.distributed.distributed_c10d._resolve_process_group",
        why="Collectives of an exported graph name their group.",
    ),
    Name(target="torch.utils._pytree.tree_leaves", why=_NESTED),
    Name(target="torch.utils._pytree.tree_map", why=_NESTED),
    Name(target="torch.utils._pytree.tree_map_only", why=_NESTED),
    Name(
        target="torch.utils._pytree.register_constant",
        why="Dynamo passes an NKI kernel through graphs as a constant.",
    ),
    Name(
        target="torch.utils._sympy.symbol.SymT", why="A Python float that became a symbol is distinguished from a size."
    ),
    Name(
        target="torch.utils._sympy.symbol.symbol_is_type",
        why="A Python float that became a symbol is distinguished from a size.",
        parameters=("sym", "prefix"),
    ),
    Name(
        target="torch.distributed.distributed_c10d._get_default_store",
        why="Collectives without a process group use the store of the one that a script made.",
    ),
    Name(
        target="torch.distributed.distributed_c10d._create_process_group_wrapper",
        why="Ranks of the backend xla compare their collectives before they start.",
        parameters=("wrapped_pg", "store_prefix", "store", "rank", "world_size", "timeout"),
    ),
    Name(target="torch._ops.OpOverload", why="Rules look operators up by overload."),
    Name(target="torch._ops.HigherOrderOperator", why="Operators that contain graphs have separate rules."),
    Name(
        target="torch._library.custom_ops.CustomOpDef",
        why="`nki_op` returns what `torch.library.custom_op` returns.",
    ),
    Name(
        target="torch._decomp.decomposition_table",
        why="Which operators torch can write as others decides about support.",
    ),
    Name(
        target="torch._decomp.core_aten_decompositions",
        why="Graphs are checked after the decompositions of core ATen.",
    ),
    Name(
        target="torch._guards.CompileContext",
        why="A compile report numbers frames as torch does.",
    ),
    Name(
        target="torch._guards.TracingContext",
        why="AOTAutograd gets the layout of complex results, which host code returns as pairs.",
    ),
    Name(
        target="torch._higher_order_ops.flex_attention.flex_attention",
        why="FlexAttention in a graph is found by this operator.",
    ),
    Name(
        target="torch._higher_order_ops.flex_attention.sdpa_dense",
        why="FlexAttention in a graph is written out with it.",
    ),
    Name(target="torch._dynamo.config", why="Buckets compile more often than Dynamo's limit.", alias="dynamo_config"),
    Name(target="torch._dynamo.utils.counters", why="A compile report says what was loaded from caches."),
    Name(
        target="torch._dynamo.exc.TensorifyScalarRestartAnalysis",
        why="A Python float becomes a constant when Dynamo captures the function again.",
    ),
    Name(
        target="torch._dynamo.symbolic_convert.TensorifyState",
        why="A Python float becomes a constant when Dynamo captures the function again.",
    ),
    Name(
        target="torch._functorch.config",
        why="Graphs without host code are not stored in AOTAutograd's cache.",
        alias="functorch_config",
    ),
    Name(
        target="torch._functorch._aot_autograd.autograd_cache.should_bundle_autograd_cache",
        why="Bundled caches would store our host functions by value.",
    ),
    Name(
        target="torch.fx._lazy_graph_module._LazyGraphModule",
        why="Sources of a captured graph are read before its code is made.",
    ),
    Name(
        target="torch.fx._lazy_graph_module._use_lazy_graph_module",
        why="A capture makes code of the last graph only, which halves its time.",
        parameters=("should_use",),
    ),
    Name(target="torch.fx.graph_module._loader", why="Code of a graph that is gone is removed from its cache."),
    Name(target="torch._C._aoti", why="Compiled blocks are called with handles of tensors."),
    Name(
        target="torch._C._dispatch_get_all_op_names",
        why="The table of rules names operators that torch has.",
    ),
    Name(
        target="torch._C._dispatch_get_registrations_for_dispatch_key",
        why="Operators that torch composes of others may be in an artifact.",
    ),
    Name(
        target="torch._C._dispatch_has_kernel_for_dispatch_key",
        why="An operator without a kernel for the CPU cannot run on the host.",
    ),
    Name(
        target="torch._C._profiler._ExperimentalConfig",
        why="`torch_neuronx.profiling.NeuronConfig` is passed as `experimental_config`; profiles record all threads.",
    ),
    Name(
        target="torch._C._DisableAutocast",
        why="Work of eager operators is counted without autocast.",
    ),
    Name(
        target="torch._C.DispatchKey",
        why="An operator whose gradient is in float64 is decomposed before graphs are differentiated.",
    ),
    Name(target="torch._C.Graph", why="Each segment on the CPU is a separate TorchScript graph."),
    Name(target="torch._C.TensorType", why="Values between segments are tensors of any shape to TorchScript."),
    Name(
        target="torch._C._create_function_from_graph",
        why="A segment on the CPU is a TorchScript function, which is saved with the model.",
    ),
    Name(
        target="torch._C._jit_pass_inline",
        why="Functions that TorchScript compiled are divided as the graph that calls them is.",
    ),
    Name(target="torch._C.parse_schema", why="Operators of a TorchScript graph are called by their schema."),
    Name(
        target="torch._C._should_allow_numbers_as_tensors",
        why="Numbers of a TorchScript graph are tensors, which operators take as numbers.",
    ),
    Name(target="torch._C._is_alias_of", why="An NKI kernel may not return its input."),
    Name(target="torch._C._nn._parse_to", why="`.to()` of models reads its arguments as modules do."),
    Name(target="torch._C._nn.linear", why="Python calls it in half the time of the operator."),
    Name(target="torch._C._nn.silu", why="Python calls it in half the time of the operator."),
    Name(target="torch._C._autograd.DeviceType", why="The default stream is made by the number of the device's type."),
    Name(
        target="torch._C._get_privateuse1_backend_name",
        why="Another third-party device may be registered.",
    ),
    Name(
        target="torch._register_device_module",
        why="`torch.neuron` is the module of the device.",
        parameters=("device_type", "module"),
    ),
    Name(target="torch._C", why="Functions for accelerators wait for the first use of the device."),
    Name(
        target="torch._C._acc.DeviceGuard", why="Autograd counts devices at its first backward, which may come first."
    ),
    Name(
        target="torch._C._acc.register_python_privateuseone_device_guard",
        why="Autograd counts devices at its first backward, which may come before the device is built.",
    ),
    Name(target="torch.cpu._is_amx_tile_supported", why="Host code is chosen by the CPU."),
    Name(target="torch.cpu._is_avx512_bf16_supported", why="Host code is chosen by the CPU."),
    Name(target="torch.cpu._is_vnni_supported", why="Host code is chosen by the CPU."),
    Name(
        target="torch.ops.mkldnn._convolution_pointwise",
        why="Convolutions run in oneDNN with what follows them.",
    ),
    Name(
        target="torch.ops.mkldnn._linear_pointwise",
        why="Matrix multiplications run in oneDNN over packed weights.",
    ),
    Name(
        target="torch.ops.mkldnn._reorder_convolution_weight",
        why="Weights are packed once, at load.",
    ),
    Name(
        target="torch.ops.mkldnn._reorder_linear_weight",
        why="Weights are packed once, at load.",
    ),
)

DEFAULT_BACKEND_CALL = Patch(
    target="torch._TorchCompileInductorWrapper.__call__",
    why="`torch.compile` without a backend compiles graphs of device tensors with the backend neuron.",
    parameters=("model_", "inputs_"),
)
DEFAULT_BACKEND_RESET = Patch(
    target="torch._TorchCompileInductorWrapper.reset",
    why="`torch.compiler.reset()` resets the backend neuron too.",
)
AUTOCAST_INIT = Patch(
    target="torch.autocast.__init__",
    why="Autocast on the device starts with bfloat16 in every thread, and `cuda` means the device without CUDA.",
    parameters=("device_type", "dtype"),
)
FLEX_ATTENTION_DEVICES = Patch(
    target="torch.nn.attention.flex_attention._validate_device",
    why="FlexAttention accepts devices from a list without this one.",
    parameters=("query", "key", "value"),
)
FUSED_DEVICES = Patch(
    target="torch.optim.optimizer._get_fused_kernels_supported_devices",
    why="Fused optimizers accept devices from a list without xla; Trainer of transformers 5 chooses one.",
)
GLOO_OPTIONS_COPY = Patch(
    target="torch.distributed.ProcessGroupGloo._Options.__deepcopy__",
    why="DeviceMesh copies the options of a process group.",
    is_new=True,
)
BACKEND_CONFIG_INIT = Patch(
    target="torch.distributed.distributed_c10d.BackendConfig.__init__",
    why="A process group of the device has a backend for host tensors too.",
    parameters=("backend",),
)
_GROUP = "torch.distributed.ProcessGroup"
ALL_GATHER_SINGLE = Patch(
    target=f"{_GROUP}.all_gather_single", why="accelerate gathers into a flat tensor; gloo compares shapes."
)
REDUCE_SCATTER_SINGLE = Patch(
    target=f"{_GROUP}.reduce_scatter_single", why="FSDP2 divides gradients with a scaled sum, which gloo lacks."
)
START_COALESCING = Patch(
    target=f"{_GROUP}._start_coalescing", why="Collectives are grouped, and gloo has no groups of device tensors."
)
END_COALESCING = Patch(
    target=f"{_GROUP}._end_coalescing", why="Collectives are grouped, and gloo has no groups of device tensors."
)
COALESCED = tuple(
    Patch(target=f"{_GROUP}.{name}", why="It may be called while a group of collectives is open.")
    for name in (
        *("allreduce_coalesced", "all_gather_single_coalesced", "reduce_scatter_single_coalesced"),
        *("send", "recv"),
    )
)
FIRST_USE = (
    Patch(
        target="torch._C._accelerator_getDeviceIndex",
        why="The device is built at the first call of a function with the prefix `_accelerator_`.",
    ),
    Patch(target="torch._C._get_accelerator", why="The device is known before it is built."),
)

NEW_GROUP = Patch(
    target="torch.distributed.distributed_c10d._new_group_with_tag",
    why="Only members of a group of the backend xla make it.",
    parameters=("ranks", "backend", "backend_options", "use_local_synchronization"),
)
GROUP_MESH = Patch(target=f"{_GROUP}._mesh", why="Every process group of torch_xla has its mesh.", is_new=True)

ROWS = (
    *NAMES,
    *(NEW_GROUP, GROUP_MESH, FUSED_DEVICES),
    *(DEFAULT_BACKEND_CALL, DEFAULT_BACKEND_RESET, AUTOCAST_INIT, FLEX_ATTENTION_DEVICES, GLOO_OPTIONS_COPY),
    *(BACKEND_CONFIG_INIT, ALL_GATHER_SINGLE, REDUCE_SCATTER_SINGLE, START_COALESCING, END_COALESCING),
    *(*COALESCED, *FIRST_USE),
)


def __getattr__(name: str) -> Any:
    return import_name(__name__, NAMES, name)


def schema_of(node: fx.Node) -> torch.FunctionSchema | None:
    """Return the schema of the operator that a node calls; None for other nodes and functions."""
    return getattr(node.target, "_schema", None)
