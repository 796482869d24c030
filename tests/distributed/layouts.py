"""What each process of a distributed test runs: `torchrun -m tests.distributed.layouts FOLDER STEPS CASE ...`.

A case is a layout. Its losses are written by rank 0 to FOLDER/losses.json; with WORLD_SIZE unset it is transformers'
Trainer on the CPU.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.trainer.conftest import SIZES, losses

BATCH = 8
CASES: dict[str, dict[str, Any]] = {
    "dp": {},
    "zero_1": {"zero_1": True},
    "fsdp": {"fsdp": True},
    "tp": {"tensor_parallel_size": 2},
    "sp": {"tensor_parallel_size": 2, "sequence_parallel": True},
    "tp_pp": {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "pipeline_parallel_num_microbatches": 2},
    "tp_zero_1": {"tensor_parallel_size": 2, "zero_1": True},
    "pp": {"pipeline_parallel_size": 2, "pipeline_parallel_num_microbatches": 2},
}


def model_and_rows(name: str) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """A model without dropout, and examples of different lengths."""
    from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    ids = torch.randint(0, SIZES["vocab_size"], (256, 16))
    if name.startswith("bert"):
        plain = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        return BertForSequenceClassification(BertConfig(**SIZES, **plain, num_labels=3)), [
            {"input_ids": row, "labels": row[0] % 3} for row in ids
        ]
    config = LlamaConfig(**SIZES, num_key_value_heads=2, tie_word_embeddings=name.startswith("tied"))
    labels = [row.where(torch.arange(16) > i % 5, -100) for i, row in enumerate(ids)]
    return LlamaForCausalLM(config), [
        {"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)
    ]


def trainer_of(case: str, folder: Path, num_steps: int, **changes: Any) -> Any:
    """A trainer of one case: a layout, after the name of a model and a dash where it is not a Llama."""
    from accelerate.state import AcceleratorState
    from transformers import Trainer, TrainingArguments

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments

    AcceleratorState._reset_state()
    world_size = int(os.environ.get("WORLD_SIZE", "0"))
    layout = dict(CASES[case.rpartition("-")[2]]) if world_size else {}
    together = layout.get("tensor_parallel_size", 1) * layout.get("pipeline_parallel_size", 1)
    model, rows = model_and_rows(case)
    options: dict[str, Any] = dict(
        output_dir=str(folder / case),
        max_steps=num_steps,
        logging_steps=1,
        learning_rate=1e-3,
        per_device_train_batch_size=BATCH * together // max(world_size, 1),
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        seed=7,
    )
    if not world_size:
        return Trainer(model, TrainingArguments(**options, use_cpu=True, **changes), train_dataset=rows)
    return NeuronTrainer(model, NeuronTrainingArguments(**{**options, **layout, **changes}), train_dataset=rows)


def main() -> None:
    folder, num_steps, cases = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    found = {}
    for case in cases:
        trainer = trainer_of(case, folder, num_steps)
        trainer.train()
        found[case] = losses(trainer)
    if int(os.environ.get("RANK", "0")) == 0:
        (folder / f"losses-{os.environ.get('WORLD_SIZE', '0')}.json").write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
