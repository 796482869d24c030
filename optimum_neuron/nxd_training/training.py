"""Trains by a configuration of NxD Training, in as many processes as it names.

    result = train("hf_llama3_8B_config.yaml")
    result["output_dir"]

`data.train_dir` is a data set of tokens that `datasets` has saved, and is read in order. With
`model_alignment_strategy.sft` it is a file of JSON lines with `input` and `output`, which TRL tokenizes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import transformers

from .. import trainer as trainers
from ..base import env
from ..errors import ConfigError
from ..sources import find_folder, read_config
from .configuration import Given, read_given
from .options import training_options, unused

logger = logging.getLogger(__name__)
_FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def model_config(given: Given, model: str | None = None) -> Any:
    """Return the transformers configuration of a model, with the sizes that options replace.

    Args:
        given: the options.
        model: folder or Hub ID; None: `model.model_config`.
    """
    path = model or given.take("model.model_config")
    if path is None:
        hint = "Set model_source: hf and model.model_config, or pass the model."
        raise ConfigError(f"{given.name} has no model.model_config.", hint=hint, key="model.model_config")
    folder = Path(path).parent if Path(path).name == "config.json" else find_folder(path, with_weights=False)
    config = read_config(folder)
    for name in ("num_layers", "hidden_size", "max_position_embeddings"):
        own = "num_hidden_layers" if name == "num_layers" else name
        setattr(config, own, given.take(f"model.{name}", getattr(config, own)))
    if given.take("model.hidden_size") is not None:
        config.head_dim = config.hidden_size // config.num_attention_heads
    if (theta := given.take("model.rope_theta")) is not None:
        config.rope_parameters = {**config.rope_parameters, "rope_theta": theta}
    return config


def train(path: str | Path) -> dict[str, Any]:
    """Train, and return where the checkpoints are, the losses, and the options without effect.

    Args:
        path: a YAML file of NxD Training with `model_source: hf`.

    Raises:
        ConfigError: an option is unknown or has no counterpart, or the number of processes is another.
    """
    given = read_given(path)
    _require_training(given)
    fields = training_options(given, env.world_size() or 1)
    start, resumes = given.take("exp_manager.resume_from_checkpoint"), given.take("exp_manager.resume_if_exists")
    must_resume = resumes and not given.take("exp_manager.resume_ignore_no_checkpoint")
    is_new = start is None or not given.take("model.weight_init_only", False)
    source = model_config(given) if is_new else start
    kind, arguments_kind, of_kind, data = _data(given)
    adapter, without_effect = _adapter(given), unused(given)
    if env.rank() in (None, 0) and without_effect:
        logger.info("Keys of %s without effect here: %s.", given.name, ", ".join(without_effect))
    auto, dtype = transformers.AutoModelForCausalLM, fields.pop("dtype")
    arguments = arguments_kind(**fields, **of_kind, dataloader_drop_last=True, report_to=[], disable_tqdm=True)
    transformers.set_seed(arguments.seed)
    model = (auto.from_config if is_new else auto.from_pretrained)(source, dtype=dtype)
    trainer = kind(model, arguments, peft_config=adapter, **data)
    latest = trainers.checkpoints.last_complete(arguments.output_dir).value if resumes else None
    trainer.train(resume_from_checkpoint=latest is not None or must_resume or (start if is_new else None))
    losses = [{"step": one["step"], "loss": one["loss"]} for one in trainer.state.log_history if "loss" in one]
    return {"output_dir": arguments.output_dir, "losses": losses, "without_effect": without_effect}


def _require_training(given: Given) -> None:
    """Require a model and a way to train that are here."""
    if given.take("model_source") != "hf":
        raise given.wrong("model_source", "Set hf: models of Megatron are not here.")
    for other in ("dpo", "orpo"):
        if given.has(f"model_alignment_strategy.{other}"):
            hint = f"Use Neuron{other.upper()}Trainer, or model_alignment_strategy.sft."
            raise ConfigError(f"{given.name}: {other} is not supported here.", hint=hint, key=other)


def _data(given: Given) -> tuple[type, type, dict[str, Any], dict[str, Any]]:
    """The classes of the trainer and of its arguments, their further fields, and the data."""
    import datasets

    file = given.take("data.train_dir")
    if file is None or not Path(file).exists():
        message = f"{given.name}: data.train_dir is {file!r}, and there is no such file or folder."
        raise ConfigError(message, hint="Set it to the training data.", key="data.train_dir", value=file)
    data: dict[str, Any]
    fields: dict[str, Any]
    if not given.has("model_alignment_strategy.sft"):
        data = {"train_dataset": datasets.load_from_disk(file), "data_collator": transformers.default_data_collator}
        fields = {"train_sampling_strategy": "sequential"}
        return trainers.NeuronTrainer, trainers.NeuronTrainingArguments, fields, data
    from ..trainer import post_training

    rows = datasets.load_dataset("json", data_files=str(file), split="train")
    rows = rows.rename_columns({"input": "prompt", "output": "completion"})
    rows = rows.select(range(min(given.take("data.dev_choose_samples", len(rows)), len(rows))))
    tokenizer = transformers.AutoTokenizer.from_pretrained(given.take("data.tokenizer.type"))
    packs = bool(given.take("model_alignment_strategy.sft.packing", False))
    fields = {"max_length": given.take("data.seq_length"), "packing": packs, "packing_strategy": "wrapped"}
    data = {"train_dataset": rows, "processing_class": tokenizer}
    return post_training.NeuronSFTTrainer, post_training.NeuronSFTConfig, fields, data


def _adapter(given: Given) -> Any:
    section = "model_alignment_strategy.peft"
    if not given.has(section):
        return None
    import peft

    if given.take(f"{section}.load_lora_from_ckpt", False):
        raise given.wrong(f"{section}.load_lora_from_ckpt", "Set False, and exp_manager.resume_if_exists.")
    names = given.take(f"{section}.target_modules", ["qkv_proj"])
    return peft.LoraConfig(
        r=given.take(f"{section}.lora_rank", 16),
        lora_alpha=given.take(f"{section}.lora_alpha", 32),
        lora_dropout=given.take(f"{section}.lora_dropout", 0.05),
        bias=given.take(f"{section}.lora_bias", "none"),
        target_modules=[own for name in names for own in _FUSED.get(name, [name])],
        task_type="CAUSAL_LM",
    )
