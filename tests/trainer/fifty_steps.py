"""Losses of 50 steps of `NeuronTrainer` and of transformers' `Trainer` on the CPU, with the same seed and data.

    python -m tests.trainer.fifty_steps

prints the largest difference for a small Llama, the same with LoRA, and a small BERT, eager and compiled; the exit code
is 1 where one is above 1e-4. The tests take fewer steps.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch

from tests.trainer.conftest import SIZES, losses

NUM_STEPS = 50
TOLERANCE = 1e-4


def model_and_rows(name: str) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """A model without dropout, and examples."""
    from transformers import BertConfig, BertForSequenceClassification, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    ids = torch.randint(0, SIZES["vocab_size"], (256, 16))
    if name == "bert":
        plain = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = BertForSequenceClassification(BertConfig(**SIZES, **plain, num_labels=3))
        return model, [{"input_ids": row, "labels": row[0] % 3} for row in ids]
    model = LlamaForCausalLM(LlamaConfig(**SIZES, num_key_value_heads=2))
    if name == "llama with LoRA":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    return model, [{"input_ids": row, "labels": row} for row in ids]


def train(name: str, *, upstream: bool, compiled: bool = False) -> list[float]:
    """The losses of one run."""
    from transformers import Trainer, TrainingArguments

    from optimum_neuron import NeuronTrainer, NeuronTrainingArguments

    model, rows = model_and_rows(name)
    arguments = (TrainingArguments if upstream else NeuronTrainingArguments)(
        output_dir=tempfile.mkdtemp(),
        max_steps=NUM_STEPS,
        logging_steps=1,
        learning_rate=1e-3,
        save_strategy="no",
        disable_tqdm=True,
        report_to=[],
        use_cpu=upstream,
        torch_compile=compiled,
    )
    trainer = (Trainer if upstream else NeuronTrainer)(model, arguments, train_dataset=rows)
    trainer.train()
    return losses(trainer)


def main() -> int:
    """Compare; return the exit code."""
    failed = False
    for name in ("llama", "llama with LoRA", "bert"):
        theirs = train(name, upstream=True)
        for compiled in (False, True):
            ours = train(name, upstream=False, compiled=compiled)
            assert len(ours) == len(theirs) == NUM_STEPS
            worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            failed |= worst > TOLERANCE
            how = "compiled" if compiled else "eager"
            print(f"RESULT {name}, {how}: largest difference {worst:.2e}, last loss {ours[-1]:.4f}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
