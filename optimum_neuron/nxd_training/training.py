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
    sizes = {"num_layers": "num_hidden_layers", "hidden_size": "hidden_size"}
    for key, name in {**sizes, "max_position_embeddings": "max_position_embeddings"}.items():
        setattr(config, name, given.take(f"model.{key}", getattr(config, name)))
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
    if given.take("model_source") != "hf":
        raise given.wrong("model_source", "Set hf: models of Megatron are not here.")
    fields = training_options(given, env.world_size() or 1)
    dtype, is_tuned = fields.pop("dtype"), given.has("model_alignment_strategy.sft")
    for other in ("dpo", "orpo"):
        if given.has(f"model_alignment_strategy.{other}"):
            hint = f"Use Neuron{other.upper()}Trainer, or model_alignment_strategy.sft."
            raise ConfigError(f"{given.name}: {other} is not supported here.", hint=hint, key=other)
    start, begins_anew = given.take("exp_manager.resume_from_checkpoint"), given.take("model.weight_init_only", False)
    config = model_config(given) if start is None or not begins_anew else None
    adapter, parts = _adapter(given), _data(given, is_tuned)
    resumes, must = (
        given.take("exp_manager.resume_if_exists"),
        not given.take("exp_manager.resume_ignore_no_checkpoint"),
    )
    without_effect = unused(given)
    arguments = parts.pop("kind")(
        **fields, **parts.pop("fields"), dataloader_drop_last=True, report_to=[], disable_tqdm=True
    )
    if env.rank() in (None, 0) and without_effect:
        logger.info("Keys of %s without effect here: %s.", given.name, ", ".join(without_effect))
    transformers.set_seed(arguments.seed)
    kind = transformers.AutoModelForCausalLM
    model = kind.from_pretrained(start, dtype=dtype) if config is None else kind.from_config(config, dtype=dtype)
    trainer = parts.pop("trainer")(model, arguments, peft_config=adapter, **parts)
    latest = trainers.checkpoints.last_complete(arguments.output_dir).value
    resume = resumes and (latest is not None or must) or (start if config is not None else None)
    trainer.train(resume_from_checkpoint=resume)
    losses = [{"step": one["step"], "loss": one["loss"]} for one in trainer.state.log_history if "loss" in one]
    return {"output_dir": arguments.output_dir, "losses": losses, "without_effect": without_effect}


def _data(given: Given, is_tuned: bool) -> dict[str, Any]:
    """The trainer, its arguments' class and further fields, and the data."""
    import datasets

    file = given.take("data.train_dir")
    if file is None or not Path(file).exists():
        message = f"{given.name}: data.train_dir is {file!r}, and there is no such file or folder."
        raise ConfigError(message, hint="Set it to the training data.", key="data.train_dir", value=file)
    if not is_tuned:
        return {
            "kind": trainers.NeuronTrainingArguments,
            "fields": {"train_sampling_strategy": "sequential"},
            "trainer": trainers.NeuronTrainer,
            "train_dataset": datasets.load_from_disk(file),
            "data_collator": transformers.default_data_collator,
        }
    from ..trainer import post_training

    rows = datasets.load_dataset("json", data_files=str(file), split="train")
    rows = rows.rename_columns({"input": "prompt", "output": "completion"})
    count = given.take("data.dev_choose_samples", len(rows))
    packs = bool(given.take("model_alignment_strategy.sft.packing", False))
    return {
        "kind": post_training.NeuronSFTConfig,
        "fields": {"max_length": given.take("data.seq_length"), "packing": packs, "packing_strategy": "wrapped"},
        "trainer": post_training.NeuronSFTTrainer,
        "train_dataset": rows.select(range(min(count, len(rows)))),
        "processing_class": transformers.AutoTokenizer.from_pretrained(given.take("data.tokenizer.type")),
    }


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
