"""Which name of PyTorch/XLA is which object here: the table of a front door (`optimum_neuron/base/doors.py`)."""

from __future__ import annotations

from optimum_neuron.base.doors import ON_IMPORT, OTHERS, Missing, Names

_XLA = "optimum_neuron.xla"


def _of(module: str, *names: str, **renamed: str) -> dict[str, str]:
    """Names of a module of `optimum_neuron.xla`, and torch_xla's names of others."""
    both = {**dict.fromkeys(names), **renamed}
    return {name: f"{_XLA}.{module}:{target or name}" for name, target in both.items()}


def _here(*names: str) -> dict[str, str]:
    """Names of `_values.py`: strings, and old names."""
    return {name: f"optimum_neuron_sim_xla._values:{name}" for name in names}


def _missing(alternative: str, *names: str) -> dict[str, str]:
    return {name: Missing(alternative) for name in names}


_PROCESSES = "Start one process for each core with `torchrun --nproc_per_node=N`: a tensor is on one device."
_HLO = "Graphs are not HLO here. Call `torch.neuron.compile_report()`, or export with `torch.export`."
_KERNELS = "Write kernels with NKI: `torch_neuronx.nki_op`."
_WITHOUT_COPIES = "Call `.cpu()`: memory of a device is not shared."

_SYNC = _of("graphs", "sync")
_SEED = _of("random_state", "manual_seed")
_LAUNCH = _of("spawning", "launch")
_NESTED_WALKS = _of("nested", "DataWrapper", "for_each_instance", "for_each_instance_rewrite")
_SYNCFREE = _of("syncfree", "Adam", "AdamW", "SGD")
_METRICS = _of(
    "metrics",
    *("clear_all", "clear_counters", "clear_metrics", "counter_names", "counter_value", "executed_fallback_ops"),
    *("metric_data", "metric_names", "metrics_report", "short_metrics_report"),
)
_ORDINALS = _of(
    "ordinals",
    *("addressable_device_count", "get_master_ip", "global_device_count", "global_ordinal", "host_index"),
    *("local_device_count", "local_ordinal", "local_process_count", "world_size"),
    addressable_runtime_device_count="addressable_device_count",
    global_runtime_device_count="global_device_count",
    process_count="world_size",
    process_index="global_ordinal",
)
_COLLECTIVES = {
    **_of(
        "collectives",
        *("all_gather", "all_gather_bucketized", "all_reduce", "all_to_all", "collective_broadcast"),
        *("collective_permute", "recv", "reduce_scatter", "reduce_scatter_bucketized", "send"),
    ),
    **_of(
        "gradients",
        *("all_reduce_bucketized_gradients", "broadcast_master_param", "optimizer_step", "reduce_gradients"),
        _fetch_gradients="gradients_of",
    ),
    **_of("rendezvous", "do_on_ordinals", "mesh_reduce", "rendezvous", "xla_rendezvous"),
}
_DTENSOR = 'Make the mesh on the device neuron, `init_device_mesh("neuron", shape)`: on xla, torch\'s DTensor is SPMD.'
_SPMD = {**_missing(_DTENSOR, "xla_distribute_module", "xla_distribute_tensor"), OTHERS: Missing(_PROCESSES)}
_FSDP = {OTHERS: Missing("Use `torch.distributed.fsdp.fully_shard` on device neuron, or `ZeroRedundancyOptimizer`.")}
_EAGER_MODE = _of("compiling", "eager_mode", "eager_mode_context", "is_eager_mode")
_INTERNAL = {OTHERS: Missing("It is an internal part of PyTorch/XLA. Use the public names of `torch_xla`.")}

NAMES: Names = {
    "torch_xla": {
        ON_IMPORT: "optimum_neuron_sim_xla._values:begin",
        **_SYNC,
        **_SEED,
        **_LAUNCH,
        **_of("selection", "device", "device_count", "devices", "real_devices"),
        **_of("compiling", "compile", "set_custom_compile_options", "step"),
        **_here("__version__"),
        **_missing(_HLO, "save_as_stablehlo", "save_torch_model_as_stablehlo"),
        "xm": "torch_xla.core.xla_model:",
    },
    "torch_xla._XLAC": {
        **_of(
            "internals",
            _get_ir_debug="ir_debug",
            _set_ir_debug="set_ir_debug",
            _xla_get_cpu_tensors="cpu_tensors",
            _xla_get_default_device="default_device",
            _xla_get_tensor_id="tensor_id",
            _xla_get_tensor_view_alias_id="tensor_id",
            _xla_step_marker="step_marker",
            _xla_sync_multi="sync_multi",
            _xla_tensors_from_aten="tensors_from_aten",
            _xla_warm_up_cache="warm_up_cache",
        ),
        **_of("graphs", _get_allow_execution="execution_allowed", _set_allow_execution="set_execution_allowed"),
        **_of("mixed", _xla_optimization_barrier_="optimization_barrier_"),
        **_of("random_state", _xla_get_rng_seed="get_rng_state", _xla_set_rng_seed="set_rng_state"),
        **_of(
            "selection",
            _xla_device_kind="device_kind",
            _xla_get_devices="real_devices",
            _xla_memory_info="memory_info",
            _xla_num_devices="device_count",
            _xla_real_devices="real_devices",
            _xla_wait_device_ops="wait_device_ops",
        ),
        **_of(
            "metrics",
            _clear_xla_counters="clear_counters",
            _clear_xla_metrics="clear_metrics",
            _get_executed_fallback_ops="executed_fallback_ops",
            _xla_counter_names="counter_names",
            _xla_counter_value="counter_value",
            _xla_increment_counter="increment_counter",
            _xla_metric_data="metric_data",
            _xla_metric_names="metric_names",
            _xla_metrics_report="metrics_report",
        ),
        **_missing(_HLO, "_get_xla_tensor_debug_info", "_get_xla_tensors_hlo", "_get_xla_tensors_text"),
        **_INTERNAL,
    },
    "torch_xla._dynamo": _INTERNAL,
    "torch_xla._dynamo.config": _INTERNAL,
    "torch_xla._dynamo.dynamo_backend2": _INTERNAL,
    "torch_xla._dynamo.dynamo_bridge": _of("dynamo", "extract_compiled_graph"),
    "torch_xla._internal": _INTERNAL,
    "torch_xla._internal.jax_workarounds": _INTERNAL,
    "torch_xla._internal.neuron": _INTERNAL,
    "torch_xla._internal.pjrt": _INTERNAL,
    "torch_xla._internal.tpu": _INTERNAL,
    "torch_xla._internal.utils": _INTERNAL,
    "torch_xla.amp": {
        **_of("mixed", "GradScaler", "autocast"),
        "autocast_mode": "torch_xla.amp.autocast_mode:",
        "syncfree": "torch_xla.amp.syncfree:",
    },
    "torch_xla.amp.autocast_mode": _of("mixed", "autocast"),
    "torch_xla.amp.syncfree": _SYNCFREE,
    "torch_xla.amp.syncfree.adam": {"Adam": _SYNCFREE["Adam"]},
    "torch_xla.amp.syncfree.adamw": {"AdamW": _SYNCFREE["AdamW"]},
    "torch_xla.amp.syncfree.sgd": {"SGD": _SYNCFREE["SGD"]},
    "torch_xla.backends": {OTHERS: Missing("Set the precision of products with NEURON_CC_FLAGS=--auto-cast=...")},
    "torch_xla.core": {},
    "torch_xla.core.dynamo_bridge": _of("dynamo", "extract_compiled_graph"),
    "torch_xla.core.functions": {
        **_of("collective_functions", "SyncBatchNorm", "all_gather", "all_reduce"),
        **_missing("Call `torch.matmul` and `xm.all_reduce`.", "distributed_mm"),
    },
    "torch_xla.core.xla_builder": {OTHERS: Missing(_HLO)},
    "torch_xla.core.xla_op_registry": {OTHERS: Missing(_HLO)},
    "torch_xla.core.xla_env_vars": _here(
        *(
            "HOST_WORLD_SIZE",
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE",
            "PJRT_DEVICE",
            "PJRT_LOCAL_PROCESS_COUNT",
            "PJRT_LOCAL_PROCESS_RANK",
        ),
        *("PJRT_SELECT_DEFAULT_DEVICE", "RANK", "WORLD_SIZE"),
    ),
    "torch_xla.core.xla_model": {
        **_COLLECTIVES,
        **_here("REDUCE_AND", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_MUL", "REDUCE_OR", "REDUCE_SUM"),
        **_here("get_local_ordinal", "get_ordinal", "mark_step", "xla_device", "xrt_world_size"),
        **_of("closures", "add_step_closure", _run_step_closures="run_step_closures"),
        **_of("gradients", _fetch_gradients="gradients_of"),
        **_of("internals", "unlazy"),
        **_of("mixed", "optimization_barrier_"),
        **_of("nested", "ToXlaTensorArena", "check_view_sharing", "is_xla_tensor", "send_cpu_data_to_device"),
        **_of("nested", _maybe_convert_to_cpu="to_cpu"),
        **_of("ordinals", "is_master_ordinal", "master_print"),
        **_of("random_state", "fork_rng", "get_rng_state", "set_rng_state"),
        **_of(
            "selection",
            "set_replication",
            "wait_device_ops",
            get_memory_info="memory_info",
            get_xla_supported_devices="supported_devices",
            xla_device_hw="device_hardware",
            xla_device_kind="device_kind",
            xla_real_devices="real_devices",
            xla_replication_devices="replication_devices",
        ),
        **_of("serialization", "save"),
        **_of("utilities", "RateTracker"),
        **_missing(_HLO, "get_stablehlo", "get_stablehlo_bytecode"),
    },
    "torch_xla.debug": {},
    "torch_xla.debug.metrics": _METRICS,
    "torch_xla.debug.metrics_compare_utils": {OTHERS: Missing("Read `met.counter_value` and `met.metric_data`.")},
    "torch_xla.debug.model_comparator": {OTHERS: Missing("Compare with `torch.testing.assert_close`.")},
    "torch_xla.debug.profiler": _of(
        "profiler",
        *("StepTrace", "Trace", "start_server", "start_trace", "stop_trace", "trace", "trace_detached", "trace_me"),
        get_tracer_marked_step="marked_step",
        set_tracer_marked_step="set_marked_step",
    ),
    "torch_xla.distributed": {},
    "torch_xla.distributed.data_parallel": {OTHERS: Missing(_PROCESSES)},
    "torch_xla.distributed.fsdp": _FSDP,
    "torch_xla.distributed.fsdp.consolidate_sharded_ckpts": _FSDP,
    "torch_xla.distributed.fsdp.state_dict_utils": _FSDP,
    "torch_xla.distributed.fsdp.utils": _FSDP,
    "torch_xla.distributed.fsdp.wrap": _FSDP,
    "torch_xla.distributed.parallel_loader": _of(
        "parallel_loader", "MpDeviceLoader", "ParallelLoader", "PerDeviceLoader"
    ),
    "torch_xla.distributed.spmd": _SPMD,
    "torch_xla.distributed.spmd.debugging": _SPMD,
    "torch_xla.distributed.spmd.xla_sharding": _SPMD,
    "torch_xla.distributed.xla_backend": {
        ON_IMPORT: f"{_XLA}.process_groups:register",
        **_of("process_groups", "ProcessGroupXla"),
    },
    "torch_xla.distributed.xla_multiprocessing": _of("spawning", "MpModelWrapper", "MpSerialExecutor", "spawn"),
    "torch_xla.distributed.zero_redundancy_optimizer": _of("zero", "ZeroRedundancyOptimizer"),
    "torch_xla.experimental": _EAGER_MODE,
    "torch_xla.experimental.assume_pure": _of("loops", "assume_pure"),
    "torch_xla.experimental.callback": {OTHERS: Missing("Call `xm.add_step_closure`.")},
    "torch_xla.experimental.custom_kernel": {OTHERS: Missing(_KERNELS)},
    "torch_xla.experimental.distributed_checkpoint": {
        OTHERS: Missing("Call `xm.save`, or `torch_xla.utils.serialization.save`.")
    },
    "torch_xla.experimental.eager": _EAGER_MODE,
    "torch_xla.experimental.fori_loop": {OTHERS: Missing("Write a loop of Python.")},
    "torch_xla.experimental.gradient_accumulation": _of("loops", "gradient_accumulation"),
    "torch_xla.experimental.gru": {OTHERS: Missing("Use `torch.nn.GRU`.")},
    "torch_xla.experimental.mark_pattern_utils": {OTHERS: Missing(_HLO)},
    "torch_xla.experimental.pallas_kernels": {OTHERS: Missing(_KERNELS)},
    "torch_xla.experimental.pjrt": _ORDINALS,
    # Imported for its side effect, the store of `init_method="xla://"`.
    "torch_xla.experimental.pjrt_backend": {ON_IMPORT: f"{_XLA}.process_groups:register"},
    "torch_xla.experimental.plugins": _INTERNAL,
    "torch_xla.experimental.scan": _of("loops", "scan"),
    "torch_xla.experimental.scan_layers": _of("loops", "scan_layers"),
    "torch_xla.experimental.splash_attention": {OTHERS: Missing(_KERNELS)},
    "torch_xla.experimental.spmd_fully_sharded_data_parallel": _SPMD,
    "torch_xla.experimental.stablehlo_custom_call": {OTHERS: Missing(_HLO)},
    "torch_xla.experimental.xla_marker": {OTHERS: Missing(_HLO)},
    "torch_xla.experimental.xla_quantized_matmul": {OTHERS: Missing(_KERNELS)},
    "torch_xla.experimental.xla_sharding": _SPMD,
    "torch_xla.runtime": {
        **_ORDINALS,
        **_of(
            "selection",
            *("device_type", "is_bf16_supported", "is_spmd", "set_device_type", "use_spmd", "using_pjrt"),
            global_runtime_device_attributes="all_device_attributes",
            runtime_device_attributes="device_attributes",
        ),
        **_of("compiled", "initialize_cache"),
        **_of("graphs", get_num_cached_compilation_graph="num_cached"),
    },
    "torch_xla.stablehlo": {OTHERS: Missing(_HLO)},
    "torch_xla.test": {},
    "torch_xla.test.test_utils": _of(
        "training_log",
        *("close_summary_writer", "get_summary_writer", "mp_test", "now", "print_test_update"),
        *("print_training_update", "write_to_summary"),
    ),
    "torch_xla.utils": {},
    "torch_xla.utils.checkpoint": _of("mixed", "checkpoint"),
    "torch_xla.utils.dlpack": {OTHERS: Missing(_WITHOUT_COPIES)},
    "torch_xla.utils.serialization": _of(
        "serialization",
        "TensorReference",
        _get_tensor_file="tensor_file",
        _get_tensors_folder="tensors_folder",
        load="load_tensors",
        save="save_tensors",
    ),
    "torch_xla.utils.utils": {
        **_NESTED_WALKS,
        **_of(
            "utilities",
            *("Cleaner", "FnDataGenerator", "LazyProperty", "SampleGenerator", "TimedScope", "TmpFolder", "as_list"),
            *("check_env_flag", "eprint", "get_free_tcp_ports", "get_print_fn", "getenv_as", "parallel_work", "timed"),
        ),
        OTHERS: Missing("It is a small helper: write it in your script."),
    },
    "torch_xla.version": _here("__version__"),
    # Libraries for XLA import it from transformers 4; where transformers has the file, that file is used.
    "transformers.utils.fx": {"HFTracer": "optimum_neuron.neuronx_distributed:HFTracer"},
}
