"""Names of transformers' models that compiled models do not have, with the reason, and what to do.

It knows names and no models. A name that a later transformers adds has the reason of the last row.
"""

from __future__ import annotations

from ..errors import UnsupportedAttributeError

_TRAIN = "Train the checkpoint with NeuronTrainer, and pass the result to replace_weights."
_CHANGE = "Change the transformers model, and compile it with from_model."
_ASK = "Call it on the transformers model."
_EXPORT = "Export with tensor_parallel_size or pipeline_parallel_size."
_MERGE = "Merge the adapter with merge_adapter, and export the result."

_ROWS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "the program was captured for inference",
        _TRAIN,
        (
            *("gradient_checkpointing_enable", "activation_checkpointing_enable", "enable_input_require_grads"),
            *("disable_input_require_grads", "register_backward_hook", "register_full_backward_hook"),
            *("register_full_backward_pre_hook", "loss_function"),
        ),
    ),
    (
        "the embeddings are compiled into the program",
        "Resize them in the transformers model, and compile it with from_model; get_parameter returns their weights.",
        (
            *("get_input_embeddings", "get_output_embeddings", "set_input_embeddings", "set_output_embeddings"),
            *("resize_token_embeddings", "resize_position_embeddings", "get_position_embeddings"),
        ),
    ),
    (
        "the layers are compiled into the program",
        _CHANGE,
        (
            *("add_module", "apply", "register_module", "register_parameter", "register_buffer", "get_submodule"),
            *("set_submodule", "get_buffer", "get_extra_state", "set_extra_state", "register_forward_hook"),
            *("register_forward_pre_hook", "register_load_state_dict_pre_hook", "register_state_dict_pre_hook"),
            *("register_load_state_dict_post_hook", "register_state_dict_post_hook", "compile", "get_compiled_call"),
            *("base_model", "get_encoder", "get_decoder", "set_encoder", "set_decoder", "tie_weights", "init_weights"),
            *("initialize_weights", "post_init", "dequantize", "set_attn_implementation", "use_kernels"),
            *("get_correct_attn_implementation", "get_correct_experts_implementation", "set_use_kernels"),
            *("get_experts_implementation", "set_experts_implementation", "can_record_outputs", "dummy_inputs"),
            *("retrieve_modules_from_names", "get_expanded_tied_weights_keys", "mark_tied_weights_as_initialized"),
        ),
    ),
    (
        "a compiled program stays on its cores",
        "Remove the call; NEURON_RT_VISIBLE_CORES says which cores these are.",
        ("share_memory", "to_empty", "xpu", "ipu", "mtia"),
    ),
    (
        "a program is divided among cores when it is compiled",
        _EXPORT,
        (
            *("tp_plan", "ep_plan", "fsdp_plan", "pp_plan", "tp_size", "fsdp_size", "supports_tp_plan"),
            *("supports_pp_plan", "supports_context_parallel", "init_parallel_plans", "prepare_distribute_model"),
            *("maybe_distribute_model", "should_save_on_this_rank", "save_distributed_checkpoint"),
            *("gather_sharded_state_dict_for_save", "barrier_after_gathered_checkpoint_save"),
            "is_distributed_loading_by_transformers",
        ),
    ),
    (
        "only decoders that were exported with max_loras take adapters",
        _MERGE,
        (
            *("load_adapter", "set_adapter", "delete_adapter", "enable_adapters", "disable_adapters"),
            *("active_adapter", "active_adapters"),
        ),
    ),
    (
        "adapters are trained before the compile, and loaded from their folder",
        "Save it with PEFT, and pass the folder to load_adapter.",
        ("add_adapter", "get_adapter_state_dict", "enable_peft_hotswap"),
    ),
)

_OTHER = "it is a feature of PyTorch's modules, and the model is a compiled program"

REFUSED = {name: (reason, hint) for reason, hint, names in _ROWS for name in names}
"""Name to the reason and the remedy."""


def refusal(name: str, model: str) -> UnsupportedAttributeError | None:
    """Return the error for a name that transformers' models have and a compiled model has not; None for any other."""
    import transformers

    if name not in REFUSED and (name.startswith("_") or not hasattr(transformers.PreTrainedModel, name)):
        return None
    reason, hint = REFUSED.get(name, (_OTHER, _ASK))
    message = f"{name} is not supported by {model}: {reason}."
    return UnsupportedAttributeError(message, hint=hint, attribute=name, model_class=model)
