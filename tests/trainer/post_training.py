"""Trainers of TRL on tiny models, for tests; run as a program, the losses of several in the processes of `torchrun`.

torchrun --nproc_per_node 2 -m tests.trainer.post_training OUTPUT '["SFT", "DPO"]' '[{}, {"fsdp": true}]'
"""

from __future__ import annotations

import copy
import json
import os
import sys
from typing import Any

import torch
import trl
from datasets import Dataset

from optimum_neuron.trainer import post_training
from tests.trainer.conftest import SIZES, losses

ROWS = [
    {"prompt": prompt, "completion": better, "chosen": better, "rejected": worse}
    for prompt, better, worse in (("a b c", " d e", " x y"), ("1 2 3", " 4 5", " 9 7"), ("m n", " o p", " k"))
] * 6
COLUMNS = {
    "SFT": ["prompt", "completion"],
    "DPO": ["prompt", "chosen", "rejected"],
    "ORPO": ["prompt", "chosen", "rejected"],
    "Reward": ["prompt", "chosen", "rejected"],
    "GRPO": ["prompt"],
}
PADDED = {"pad_to_multiple_of": 8, "max_length": 32}
OPTIONS: dict[str, dict[str, Any]] = {
    "SFT": PADDED,
    "DPO": PADDED,
    "ORPO": {"max_length": 32},
    "Reward": PADDED,
    "GRPO": {"max_completion_length": 6, "num_generations": 2, "temperature": 1e-4},
}
BATCH_SIZE = 4


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<end>", "<unknown>", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unknown>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unknown>"
    )


def make_models() -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    torch.manual_seed(0)
    special = dict(pad_token_id=0, eos_token_id=1, bos_token_id=None, num_key_value_heads=2)
    return {
        "causal": LlamaForCausalLM(LlamaConfig(**SIZES, **special)),
        "scores": LlamaForSequenceClassification(LlamaConfig(**SIZES, **special, num_labels=1)),
    }


def brevity(completions: list[str], **others: Any) -> list[float]:
    """A reward: fewer words are better."""
    return [-float(len(text.split())) for text in completions]


def make_trainer(
    method: str,
    models: dict[str, Any],
    tokenizer: Any,
    *,
    upstream: bool = False,
    peft_config: Any = None,
    columns: Any = None,
    **options: Any,
) -> Any:
    """A trainer of a method, ours or TRL's, around copies of the models; each process has its part of the batch."""
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    theirs = {"ORPOConfig": ORPOConfig, "ORPOTrainer": ORPOTrainer}
    prefix, place = ("", trl) if upstream else ("Neuron", post_training)
    kind, configuration = (
        theirs[name] if upstream and name in theirs else getattr(place, prefix + name)
        for name in (f"{method}Trainer", f"{method}Config")
    )
    defaults = dict(
        max_steps=4,
        logging_steps=1,
        learning_rate=1e-2,
        per_device_train_batch_size=BATCH_SIZE // int(os.environ.get("WORLD_SIZE", 1)),
        bf16=False,
        disable_tqdm=True,
        report_to=[],
        save_strategy="no",
        use_cpu=upstream,
    )
    keywords = {"args": configuration(**{**defaults, **OPTIONS[method], **options})}
    if method == "DPO" and peft_config is None:
        keywords["ref_model"] = copy.deepcopy(models["causal"])
    if method == "GRPO":
        keywords["reward_funcs"] = brevity
    return kind(
        copy.deepcopy(models["scores" if method == "Reward" else "causal"]),
        train_dataset=Dataset.from_list(ROWS).select_columns(columns or COLUMNS[method]),
        processing_class=tokenizer,
        peft_config=peft_config,
        **keywords,
    )


def main() -> None:
    output, methods, layouts = sys.argv[1], *map(json.loads, sys.argv[2:])
    tokenizer, models = make_tokenizer(), make_models()
    found: dict[str, dict[str, list[float]]] = {}
    for layout in layouts:
        for method in methods:
            trainer = make_trainer(method, models, tokenizer, output_dir=output, **layout)
            trainer.train()
            found.setdefault(json.dumps(layout), {})[method] = losses(trainer)
    if trainer.is_world_process_zero():
        print("LOSSES", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
