"""What this package overrides in the trainers of transformers and TRL."""

from __future__ import annotations

from .contract import Override

_TRAINER = "transformers.trainer.Trainer"
_GRPO = "trl.trainer.grpo_trainer.GRPOTrainer"
_WHOLE = "A checkpoint is complete or absent, and that of a distributed model has the weights of all shards."


def _hook(name: str, why: str, parameters: str, *callers: str) -> Override:
    return Override(
        target=f"{_TRAINER}.{name}",
        why=why,
        parameters=tuple(parameters.split()),
        callers=tuple(f"{_TRAINER}.{caller}" for caller in callers),
    )


ROWS = (
    _hook("_save", _WHOLE, "output_dir state_dict", "save_model"),
    _hook("_save_checkpoint", _WHOLE, "model trial", "_maybe_log_save_evaluate"),
    _hook("_save_optimizer_and_scheduler", _WHOLE, "output_dir", "_save_checkpoint"),
    _hook("_save_rng_state", _WHOLE, "output_dir", "_save_checkpoint"),
    _hook("_load_from_checkpoint", _WHOLE, "resume_from_checkpoint model", "_prepare_for_training"),
    _hook("_load_optimizer_and_scheduler", _WHOLE, "checkpoint", "_prepare_for_training"),
    _hook("_load_rng_state", _WHOLE, "checkpoint", "_run_epoch"),
    _hook("_load_best_model", _WHOLE, "", "_finalize_training"),
    _hook(
        "_push_from_checkpoint",
        "A checkpoint is uploaded once it is complete.",
        "checkpoint_folder",
        "_save_checkpoint",
    ),
    _hook("_get_output_dir", "A checkpoint is written to a staging folder first.", "trial", "_save_checkpoint"),
    _hook("_clip_grad_norm", "The norm of a pipeline is taken over all stages.", "model", "_run_epoch"),
    _hook(
        "_get_grad_norm",
        "A norm that is not finite ends training with the batches that caused it.",
        "model grad_norm",
        "_run_epoch",
    ),
    _hook(
        "_prepare_context_parallel_inputs",
        "A sequence is split among the ranks of context parallelism.",
        "model inputs",
        *("training_step", "prediction_step"),
    ),
    _hook(
        "_sync_replicated_trainable_parameters",
        "Stages of a pipeline have different parameters.",
        "model",
        "_prepare_for_training",
    ),
    _hook(
        "_move_model_to_device",
        "Host memory of the copied parameters is given back.",
        "model device",
        "__init__",
        "train",
    ),
    _hook(
        "_get_dataloader",
        "A dataset without rows, or without the columns that the model reads, is an error.",
        "dataset description batch_size is_training",
        *("get_train_dataloader", "get_eval_dataloader", "get_test_dataloader"),
    ),
    Override(
        target=f"{_GRPO}._tokenize_prompts",
        why="`max_prompt_length` of TRL before 1.0 cuts long prompts.",
        parameters=("prompts",),
        callers=(f"{_GRPO}._generate",),
    ),
)
