"""What the options of NxD Training are here: arguments of `NeuronTrainingArguments`, and of `estimate_training`.

`estimate_options` reads what `neuronx_distributed_config` returns, too. `unused` names the options without effect.
`keys.json` has all keys of NxD Training by section.

    arguments = training_options(read_given("hf_llama3_8B_config.yaml"), num_processes=128)
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from ..errors import ConfigError, invalid_choice, nearest, raise_together
from .configuration import Given

_DEGREES = {
    f"{name}_parallel_size": f"distributed_strategy.{name}{rest}_parallel_size"
    for name, rest in (("tensor", "_model"), ("pipeline", "_model"), ("context", ""))
}
_FIELDS = {
    **_DEGREES,
    "seed": "seed",
    "max_steps": "trainer.max_steps",
    "logging_steps": "trainer.log_every_n_steps",
    "max_grad_norm": "trainer.gradient_clip_val",
    "save_steps": "exp_manager.checkpoint_callback_params.every_n_train_steps",
    "zero_1": "distributed_strategy.zero1",
    "learning_rate": "model.optim.lr",
    "weight_decay": "model.optim.weight_decay",
    "warmup_steps": "model.optim.sched.warmup_steps",
}
"""Fields of `NeuronTrainingArguments` that are options under other names."""
_ESTIMATED = {
    **_DEGREES,
    "num_instances": "trainer.num_nodes",
    "sequence_length": "data.seq_length",
    "batch_size": "data.global_batch_size",
    "micro_batch_size": "data.micro_batch_size",
    "zero_1": "distributed_strategy.zero1",
    "gradient_checkpointing": "model.activations_checkpoint_granularity",
}
_ESTIMATED_NXD = {
    **{name: name for name in _DEGREES},
    "zero_1": "optimizer_config.zero_one_enabled",
    "gradient_checkpointing": "activation_checkpoint_config",
    "optimizer_use_master_weights": "mixed_precision_config.use_master_weights",
}
"""Arguments of estimates that are options of NxD Training, and of `neuronx_distributed_config`."""
_ONE = {
    "distributed_strategy.virtual_pipeline_model_parallel_size": "Set 1: a process has one stage.",
    "distributed_strategy.expert_model_parallel_size": "Set 1: tensor parallelism divides experts.",
    "expert_parallel_size": "Set 1: estimates have no times for it.",
}
_OPTIMIZERS: dict[str | None, str] = {
    "adamw": "adamw_torch",
    "adamw_fp32OptState": "adamw_torch",
    **{name: name for name in ("adafactor", "adagrad", "rmsprop", "sgd")},
}
_SCHEDULERS: dict[str | None, str] = {
    "LinearAnnealingWithWarmUp": "linear",
    "CosineAnnealing": "cosine_with_min_lr",
    None: "constant",
}
_MASTERS = {"dtype": "bfloat16", "optimizer_use_master_weights": True, "optimizer_use_fp32_grad_acc": True}
_PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "autocast": {"bf16": True},
    "bf16SR": {"dtype": "bfloat16", "stochastic_rounding_enabled": True},
    "mixed_precision": _MASTERS,
    "mixed_precisionSR": {**_MASTERS, "stochastic_rounding_enabled": True},
    "manual": {},
}


def unused(given: Given) -> list[str]:
    """Return the keys that were not taken. A key that NxD does not have is an error."""
    if given.has("distributed_strategy"):
        sections = json.loads(Path(__file__).with_name("keys.json").read_text(encoding="utf-8"))
        known = {f"{name}.{key}".lstrip(".") for name, keys in sections.items() for key in keys.split()} | {*sections}
    else:
        from ..neuronx_distributed import configuration

        known = set(inspect.signature(configuration.neuronx_distributed_config).parameters)
    problems = []
    for key in given.rest():
        section = key.partition(".")[0]  # scripts choose what a section of neuronx_distributed_config has
        if key not in known and not (section in known and section.endswith("_config")):
            message = f"{given.name} has the unknown key {key!r}{nearest(key, known) or '.'}"
            problems.append(ConfigError(message, hint="Correct or remove it.", key=key))
    raise_together(problems)
    return given.rest()


def _require_one(given: Given) -> None:
    """Require degree 1 of what has no counterpart."""
    for key, hint in _ONE.items():
        if int(given.take(key, 1)) > 1:
            raise given.wrong(key, hint)


def _precision(given: Given) -> dict[str, Any]:
    """Fields of the training arguments, and `dtype` of the model."""
    kind = given.take("precision.type", "fp32")
    if kind not in _PRECISIONS:
        raise invalid_choice("precision.type", kind, _PRECISIONS)
    fields = {"dtype": "float32", "bf16": False, "optimizer_use_fp32_grad_acc": False}
    fields |= {"optimizer_use_master_weights": False, "stochastic_rounding_enabled": False, **_PRECISIONS[kind]}
    if kind == "manual":
        is_narrow = any(str(given.take(f"precision.xla_{name}_bf16", 0)) == "1" for name in ("use", "downcast"))
        rounds = str(given.take("precision.neuron_rt_stochastic_rounding_en", 0)) == "1"
        fields |= {"dtype": "bfloat16" if is_narrow else "float32", "stochastic_rounding_enabled": rounds}
        for name in ("master_weights", "fp32_grad_acc"):
            fields[f"optimizer_use_{name}"] = bool(given.take(f"precision.{name}", False))
    return fields


def estimate_options(given: Given) -> tuple[dict[str, Any], list[str]]:
    """Return arguments of `estimate_training`, and the keys without effect on an estimate.

    Args:
        given: a configuration of NxD Training, or what `neuronx_distributed_config` returns.

    Raises:
        ConfigError: a key is unknown, or has a value that estimates do not have.
    """
    is_of_training = given.has("distributed_strategy")
    names = _ESTIMATED if is_of_training else _ESTIMATED_NXD
    _require_one(given)
    options = {name: given.take(key, 1 if name in _DEGREES else None) for name, key in names.items()}
    if options.pop("context_parallel_size") > 1:
        raise given.wrong(names["context_parallel_size"], "Set 1: estimates have no times for it.")
    zero = options["zero_1"] = bool(options["zero_1"])
    options["gradient_checkpointing"] = options["gradient_checkpointing"] is not None
    if is_of_training:
        options["optimizer_use_master_weights"] = _precision(given)["optimizer_use_master_weights"]
        length = given.take("model.encoder_seq_length")
        options["sequence_length"] = length if options["sequence_length"] is None else options["sequence_length"]
    elif options["optimizer_use_master_weights"] is None:
        options["optimizer_use_master_weights"] = zero
    return {name: value for name, value in options.items() if value is not None}, unused(given)


def _batches(given: Given, num_processes: int, group: int) -> dict[str, Any]:
    """The fields of batches: processes that form one group have the same batch."""
    expected = int(given.take("trainer.devices", num_processes)) * int(given.take("trainer.num_nodes", 1))
    if expected != num_processes or expected % group:
        message = f"{given.name} is for {expected} processes, a multiple of {group} (tensor, pipeline, and context "
        message += f"parallelism), and {num_processes} run."
        hint = "Start trainer.devices processes on each node (torchrun --nproc_per_node), or change it."
        raise ConfigError(message, hint=hint, expected=expected, num_processes=num_processes)
    micro = int(given.take("data.micro_batch_size", 1))
    whole = micro * (num_processes // group)
    steps, rest = divmod(int(given.take("data.global_batch_size", whole)), whole)
    if rest or not steps:
        raise given.wrong("data.global_batch_size", f"Set a multiple of {whole}, the batch of all processes.")
    if int(given.take(_DEGREES["pipeline_parallel_size"], 1)) > 1:
        return {"per_device_train_batch_size": micro * steps, "pipeline_parallel_num_microbatches": steps}
    return {"per_device_train_batch_size": micro, "gradient_accumulation_steps": steps}


def _optimization(given: Given) -> dict[str, Any]:
    """The fields of the optimizer and the learning rate."""
    names = given.take("model.optim.name", "adamw"), given.take("model.optim.sched.name")
    for key, name, choices in zip(("optim", "optim.sched"), names, (_OPTIMIZERS, _SCHEDULERS), strict=True):
        if name not in choices:
            raise invalid_choice(f"model.{key}.name", name, [one for one in choices if one])
    whole_run = "Set ${trainer.max_steps}: the learning rate ends with the run."
    sames: tuple[tuple[str, Any, str], ...] = (
        ("constant_steps", 0, "Set 0."),
        ("max_steps", given.take("trainer.max_steps"), whole_run),
    )
    for key, same, hint in sames:
        if given.take(f"model.optim.sched.{key}", same) != same:
            raise given.wrong(f"model.optim.sched.{key}", hint)
    betas = given.take("model.optim.betas", (0.9, 0.999))
    fields = {"optim": _OPTIMIZERS[names[0]], "adam_beta1": betas[0], "adam_beta2": betas[1]}
    if names[1] == "CosineAnnealing":
        fields["lr_scheduler_kwargs"] = {"min_lr": given.take("model.optim.sched.min_lr", 0.0)}
    return {**fields, "lr_scheduler_type": _SCHEDULERS[names[1]]}


def training_options(given: Given, num_processes: int) -> dict[str, Any]:
    """Return fields of `NeuronTrainingArguments`, with `dtype` of the model.

    Args:
        given: a configuration of NxD Training.
        num_processes: processes of the run.

    Raises:
        ConfigError: a value has no counterpart, or the processes cannot be divided as it says.
    """
    _require_one(given)
    tensor, pipeline, context = (int(given.take(key, 1)) for key in _DEGREES.values())
    fields = {name: given.take(key) for name, key in _FIELDS.items()}
    is_saved = given.take("exp_manager.create_checkpoint_callback")
    kept = given.take("exp_manager.checkpoint_callback_params.save_top_k", -1) if is_saved else 0
    folder = given.take("exp_manager.exp_dir", "nemo_experiments"), given.take("exp_manager.name", "default")
    fields |= {
        "output_dir": given.take("exp_manager.explicit_log_dir", "/".join(folder)),
        "num_train_epochs": max(given.take("trainer.max_epochs", 1), 1),
        "save_strategy": "steps" if kept else "no",
        "save_total_limit": kept if kept > 0 else None,
        "gradient_checkpointing": given.take("model.activations_checkpoint_granularity") == "full" or None,
        "sequence_parallel": bool(given.take("distributed_strategy.sequence_parallel", False)) and tensor > 1,
        **_batches(given, num_processes, tensor * pipeline * context),
        **_optimization(given),
        **_precision(given),
    }
    return {name: value for name, value in fields.items() if value is not None}
