"""Names of torch_xla 2.9 and their parameters, as https://docs.pytorch.org/xla documents them.

Without parentheses: a name whose parameters are not compared.
"""

PUBLISHED = {
    "torch_xla": """
        compile(f full_graph name max_different_graphs custom_compile_options); device(index);
        device_count(); devices(); launch(fn args start_method debug_single_process); manual_seed(seed
        device); real_devices; save_as_stablehlo(exported_model stablehlo_dir options);
        save_torch_model_as_stablehlo(torchmodel args path options); set_custom_compile_options(options);
        step(); sync(wait reset_scope)
    """,
    "torch_xla.core.xla_model": """
        RateTracker(smooth_factor); ToXlaTensorArena(convert_fn select_fn); add_step_closure(closure args
        run_async); all_gather(value dim groups output pin_layout channel_id use_global_device_ids);
        all_gather_bucketized(input_list dim groups output pin_layout bucket_cap_mb); all_reduce(reduce_type
        inputs scale groups pin_layout); all_reduce_bucketized_gradients(gradients scale groups pin_layout
        bucket_cap_mb); all_to_all(value split_dimension concat_dimension split_count groups pin_layout);
        broadcast_master_param(model); check_view_sharing(obj); collective_broadcast(tensors root_ordinal
        groups pin_layout); collective_permute(value pairs); do_on_ordinals(target data ordinals);
        fork_rng(device enabled); get_local_ordinal(); get_memory_info(device); get_rng_state(device);
        get_stablehlo(tensors); get_stablehlo_bytecode(tensors); get_xla_supported_devices(max_devices);
        is_master_ordinal(local); is_xla_tensor(tensor); mark_step(wait reset_scope); master_print;
        mesh_reduce(tag data reduce_fn); optimization_barrier_(tensors); optimizer_step(optimizer barrier
        optimizer_args groups pin_layout); recv(output channel_id); reduce_gradients(optimizer groups
        pin_layout); reduce_scatter(reduce_type input scale scatter_dim shard_count groups output pin_layout
        channel_id use_global_device_ids); reduce_scatter_bucketized(reduce_type input_list scale
        scatter_dim shard_count groups output pin_layout bucket_cap_mb); rendezvous(tag payload replicas);
        save(data file_or_path master_only global_master); send(value channel_id);
        send_cpu_data_to_device(datas device input_sharding); set_replication(device devices);
        set_rng_state(seed device); unlazy(tensors); wait_device_ops(devices); xla_device(n devkind);
        xla_device_hw(device); xla_device_kind(device); xla_real_devices(devices); xla_rendezvous(payload
        ordinals tag); xla_replication_devices(local_devices)
    """,
    "torch_xla.runtime": """
        addressable_device_count(); addressable_runtime_device_count(); device_type(); get_master_ip();
        get_num_cached_compilation_graph(); global_device_count(); global_ordinal();
        global_runtime_device_attributes(); global_runtime_device_count(); host_index();
        initialize_cache(path readonly); is_bf16_supported(); is_spmd(); local_device_count();
        local_ordinal(); local_process_count(); process_count(); process_index();
        runtime_device_attributes(device); set_device_type(pjrt_device); use_spmd(auto); world_size()
    """,
    "torch_xla.distributed.parallel_loader": """
        MpDeviceLoader(loader device **kwargs); ParallelLoader(cpu_loader devices batchdim
        batches_per_execution loader_prefetch_size device_prefetch_size host_to_device_transfer_threads
        input_sharding); PerDeviceLoader(loader device)
    """,
    "torch_xla.distributed.xla_multiprocessing": """
        MpModelWrapper(model); MpSerialExecutor(); spawn(fn args nprocs join daemon start_method)
    """,
    "torch_xla.distributed.xla_backend": """
        ProcessGroupXla
    """,
    "torch_xla.distributed.zero_redundancy_optimizer": """
        ZeroRedundancyOptimizer(params optimizer_class optimizer_dtype grad_clipping max_norm pin_layout
        sharding_groups grad_norm_groups lazy_init bucket_cap_mb_all_gather bucket_cap_mb_reduce_scatter
        use_grad_acc_hook save_master_weights higher_cc_precision **defaults)
    """,
    "torch_xla.distributed.fsdp": """
        XlaFullyShardedDataParallel; checkpoint_module(module);
        consolidate_sharded_model_checkpoints(ckpt_prefix ckpt_suffix save_path save_model)
    """,
    "torch_xla.distributed.fsdp.wrap": """
        always_wrap_policy(*args **kwargs); lambda_auto_wrap_policy(module recurse unwrapped_params
        lambda_fn); recursive_wrap(module auto_wrap_policy wrapper_cls ignored_modules ignored_params
        only_wrap_children **kwargs); size_based_auto_wrap_policy(module recurse unwrapped_params
        min_num_params force_leaf_modules exclude_wrap_modules); transformer_auto_wrap_policy(module recurse
        unwrapped_params transformer_layer_cls)
    """,
    "torch_xla.distributed.spmd": """
        Mesh(device_ids mesh_shape axis_names); XLAShardedTensor; mark_sharding(t mesh partition_spec);
        set_global_mesh(mesh)
    """,
    "torch_xla.utils.serialization": """
        TensorReference(tid); load(path); save(data path master_only global_master)
    """,
    "torch_xla.utils.checkpoint": """
        checkpoint
    """,
    "torch_xla.utils.utils": """
        Cleaner(func); DataWrapper(); FnDataGenerator(func batch_size gen_tensor dims count);
        LazyProperty(gen_fn); SampleGenerator(data sample_count); TimedScope(msg printfn); TmpFolder();
        as_list(t); check_env_flag(name default); eprint(*args **kwargs); flatten_nested_tuple(inputs);
        for_each_instance(value select_fn fn); for_each_instance_rewrite(value select_fn fn);
        get_free_tcp_ports(n); get_print_fn(debug); getenv_as(name type defval); list_copy_append(ilist
        item); null_print(*args **kwargs); parallel_work(num_workers fn *args); timed(fn msg printfn)
    """,
    "torch_xla.amp": """
        autocast(device enabled dtype cache_enabled)
    """,
    "torch_xla.amp.syncfree": """
        Adam; AdamW; SGD
    """,
    "torch_xla.debug.metrics": """
        clear_all(); clear_counters(); clear_metrics(); counter_names(); counter_value(name);
        executed_fallback_ops(); metric_data(name); metric_names(); metrics_report();
        short_metrics_report(counter_names metric_names)
    """,
    "torch_xla.debug.profiler": """
        StepTrace(name **kwargs); Trace(name **kwargs); get_tracer_marked_step();
        set_tracer_marked_step(value); start_server(port only_on_master); start_trace(log_dir);
        stop_trace(); trace(service_addr logdir duration_ms num_tracing_attempts host_tracer_level
        device_tracer_level delay_ms timeout_s interval_s); trace_detached(*args **kwargs); trace_me(scope)
    """,
    "torch_xla.experimental": """
        eager_mode(enable); eager_mode_context(enable); is_eager_mode()
    """,
    "torch_xla.experimental.gradient_accumulation": """
        gradient_accumulation(train_step iterable_tensors model *carried_tensors)
    """,
    "torch_xla.experimental.scan": """
        scan(fn init xs partition_fn is_fn_pure)
    """,
    "torch_xla.experimental.scan_layers": """
        scan_layers(layers input_data partition_fn is_layer_pure)
    """,
    "torch_xla.experimental.custom_kernel": """
        flash_attention(q k v causal q_segment_ids kv_segment_ids sm_scale ab partition_spec mesh);
        paged_attention(q k_pages v_pages lengths page_indices pages_per_compute_block megacore_mode
        attn_logits_soft_cap)
    """,
    "torch_xla.core.functions": """
        SyncBatchNorm(num_features eps momentum); all_gather(value dim); all_reduce(reduce_type value scale
        groups); distributed_mm(w x split)
    """,
    "torch_xla.test.test_utils": """
        close_summary_writer(summary_writer); get_summary_writer(logdir); mp_test(func); now(format);
        print_test_update(device accuracy epoch step); print_training_update(device step loss rate
        global_rate epoch summary_writer); write_to_summary(summary_writer global_step dict_to_write
        write_xla_metrics)
    """,
}
