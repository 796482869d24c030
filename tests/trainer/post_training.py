"""Trainers of TRL on tiny models, for tests; run as a program, it prints the logs of several in the processes of
`torchrun`.

torchrun --nproc_per_node 2 -m tests.trainer.post_training OUTPUT '["SFT", "DPO"]' '[{}, {"fsdp": true}]'
"""

from __future__ import annotations

import copy
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import trl
from datasets import Dataset

from optimum_neuron.trainer import post_training
from tests.trainer.conftest import SIZES

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
    # A second step on the same answers and a reference: where neither is, the loss is 0 whatever the model does.
    "GRPO": {"max_completion_length": 6, "num_generations": 2, "num_iterations": 2, "beta": 0.1},
}
BATCH_SIZE = 4
END = 1
LOGGED = (
    *("loss", "grad_norm", "num_tokens", "mean_token_accuracy", "entropy"),
    *("reward", "kl", "clip_ratio/region_mean", "completions/mean_length"),
)
"""Compared values of the log, if a trainer has them; Adam's steps do not show a wrong scale of the gradients."""


def make_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<end>", "<unknown>", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unknown>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = dict(pad_token="<pad>", eos_token="<end>", unk_token="<unknown>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def make_models() -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

    torch.manual_seed(0)
    special = dict(pad_token_id=0, eos_token_id=END, bos_token_id=None, num_key_value_heads=2)
    return {
        "causal": LlamaForCausalLM(LlamaConfig(**SIZES, **special)),
        "scores": LlamaForSequenceClassification(LlamaConfig(**SIZES, **special, num_labels=1)),
    }


def brevity(completions: list[str], **others: Any) -> list[float]:
    """A reward: fewer words are better."""
    return [-float(len(text.split())) for text in completions]


class Sampler:
    """In place of `torch.multinomial`: draws that are the same on every device and for every split of the batch.

    Of two answers the first never ends and the second often does; no process stops before the others.
    """

    def __init__(self) -> None:
        self.num_calls = 0

    def __call__(self, probabilities: torch.Tensor, num_samples: int) -> torch.Tensor:
        draws = torch.Generator().manual_seed(self.num_calls)
        self.num_calls += 1
        noise = torch.empty(BATCH_SIZE, probabilities.shape[-1]).exponential_(generator=draws)
        noise[0::2, END], noise[1::2, END] = torch.inf, noise[1::2, END] / 20
        first = int(os.environ.get("RANK", 0)) * len(probabilities) % BATCH_SIZE
        rank_noise = noise[first : first + len(probabilities)].to(probabilities.device)
        return (probabilities / rank_noise).argmax(-1, keepdim=True)


def train(trainer: Any) -> dict[str, float]:
    """Train with a fixed seed; return the log of each step."""
    with mock.patch("torch.multinomial", Sampler()):
        trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {f"{name} {entry['step']}": entry[name] for name in LOGGED for entry in steps if name in entry}


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

    experimental = {"ORPOConfig": ORPOConfig, "ORPOTrainer": ORPOTrainer}
    prefix, place = ("", trl) if upstream else ("Neuron", post_training)
    kind, configuration = (
        experimental[name] if upstream and name in experimental else getattr(place, prefix + name)
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
    model = copy.deepcopy(models["scores" if method == "Reward" else "causal"])
    if method == "GRPO":
        keywords["reward_funcs"] = brevity
        # TRL loads the reference from where the model came from.
        folder = Path(options["output_dir"]) / "model"
        with keywords["args"].main_process_first():
            model.save_pretrained(folder)
        model.config._name_or_path = str(folder)
    return kind(
        model,
        train_dataset=Dataset.from_list(ROWS).select_columns(columns or COLUMNS[method]),
        processing_class=tokenizer,
        peft_config=peft_config,
        **keywords,
    )


def main() -> None:
    output, methods, layouts = sys.argv[1], *map(json.loads, sys.argv[2:])
    tokenizer, models = make_tokenizer(), make_models()
    results: dict[str, dict[str, dict[str, float]]] = {}
    for layout in layouts:
        for method in methods if "context_parallel_size" not in layout else ["SFT"]:
            trainer = make_trainer(method, models, tokenizer, output_dir=output, **layout)
            results.setdefault(json.dumps(layout), {})[method] = train(trainer)
    if trainer.is_world_process_zero():
        print("LOGGED", json.dumps(results), flush=True)


if __name__ == "__main__":
    main()
