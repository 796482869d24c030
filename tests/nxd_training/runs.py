"""A small run of NxD Training: its YAML, its data, and the same run by transformers' `Trainer` on the CPU.

`python -m tests.nxd_training.runs FILE` trains by a file, as one of the processes of torchrun, and prints the answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
import yaml

from optimum_neuron import nxd_training

SIZES = {"vocab_size": 64, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
NUM_STEPS, LENGTH = 4, 16


def write_run(folder: Path, *, devices: int = 1, **changed: Any) -> Path:
    """Write a model's configuration, tokens, and a YAML file; keys with `__` replace options of a section."""
    transformers.LlamaConfig(**SIZES, hidden_size=64, num_hidden_layers=8).save_pretrained(folder / "model")
    tokens = torch.randint(0, 64, (32, LENGTH), generator=torch.Generator().manual_seed(0)).tolist()
    rows = {"input_ids": tokens, "labels": tokens, "attention_mask": [[1] * LENGTH] * len(tokens)}
    datasets.Dataset.from_dict(rows).save_to_disk(folder / "data")
    options: dict[str, Any] = {
        "name": "tiny",
        "model_source": "hf",
        "seed": 7,
        "trainer": {"devices": devices, "num_nodes": 1, "max_steps": NUM_STEPS, "log_every_n_steps": 1},
        "exp_manager": {
            "exp_dir": str(folder / "runs"),
            "name": "tiny",
            "create_checkpoint_callback": True,
            "resume_if_exists": True,
            "resume_ignore_no_checkpoint": True,
            "checkpoint_callback_params": {
                "every_n_train_steps": 2,
                "save_top_k": 1,
                "model_parallel_size": "${multiply:${distributed_strategy.tensor_model_parallel_size}, 1}",
            },
            "save_xser": True,
        },
        "distributed_strategy": {"tensor_model_parallel_size": 1, "zero1": True, "sequence_parallel": True},
        "data": {"micro_batch_size": 2, "global_batch_size": 8, "train_dir": str(folder / "data")},
        "model": {
            "model_config": str(folder / "model" / "config.json"),
            "num_layers": 2,
            "hidden_size": 32,
            "max_position_embeddings": "${.encoder_seq_length}",
            "encoder_seq_length": LENGTH,
            "optim": {
                "name": "adamw_fp32OptState",
                "lr": "3e-2",
                "weight_decay": 0.1,
                "betas": [0.9, 0.95],
                "sched": {"name": "LinearAnnealingWithWarmUp", "warmup_steps": 1, "max_steps": "${trainer.max_steps}"},
            },
        },
        "precision": {"type": "fp32"},
        "compiler_flags": "--model-type transformer",
    }
    for name, value in changed.items():
        section, _, key = name.partition("__")
        options[section] = {**options.get(section, {}), key: value} if key else value
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(options, sort_keys=False), encoding="utf-8")
    return path


def reference_losses(folder: Path) -> list[float]:
    """Losses of the same run by transformers on the CPU, from the values above and not from the file."""
    transformers.set_seed(7)
    config = transformers.LlamaConfig(
        **SIZES, hidden_size=32, num_hidden_layers=2, max_position_embeddings=LENGTH, head_dim=8
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "reference"), use_cpu=True, max_steps=NUM_STEPS, logging_steps=1, save_strategy="no",
        per_device_train_batch_size=8, learning_rate=3e-2, weight_decay=0.1, adam_beta2=0.95, warmup_steps=1,
        lr_scheduler_type="linear", optim="adamw_torch", seed=7, train_sampling_strategy="sequential", report_to=[],
        disable_tqdm=True,
    )  # fmt: skip
    rows = datasets.load_from_disk(folder / "data")
    trainer = transformers.Trainer(transformers.LlamaForCausalLM(config), arguments, train_dataset=rows)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


if __name__ == "__main__":
    result = nxd_training.train(sys.argv[1])
    if torch.distributed.get_rank() == 0:
        Path(sys.argv[1]).with_suffix(".json").write_text(json.dumps(result))
