"""Recipe: teach SmolLM2 to define words with LoRA on a simulated NeuronCore, then export it and ask it.

    python models/llama/fine_tune.py

The data are definitions of WordNet, fetched from a package. Words that are asked for in the end are held out. The
adapter is in --output/adapter in PEFT's own format, the export in --output/exported.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from optimum_neuron import NeuronModelForCausalLM, NeuronSFTConfig, NeuronSFTTrainer
from optimum_neuron.checkpoints import read_rows, resolve_model
from optimum_neuron.exporters import main_export

WORDS_ASKED = 2


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--output", type=Path, default=Path("definitions_out"), help="folder of adapter and export")
    parser.add_argument("--max_steps", type=int, default=30, help="steps of training")
    parser.add_argument("--batch_size", type=int, default=8, help="definitions of a step")
    parser.add_argument("--num_held_out", type=int, default=32, help="definitions to compare before and after with")
    parser.add_argument("--learning_rate", type=float, default=1e-3, help="at its highest")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="1", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def prompt_of(word: str) -> str:
    """The question, as it is trained and asked."""
    return f"Define the noun {word}:"


def definitions(num_rows: int) -> list[dict[str, str]]:
    """Nouns of one word with a short definition, in an order that is always the same.

    Args:
        num_rows: how many.
    """
    found = {}
    for row in read_rows("definitions"):
        word = row["words"][0]
        if row["part"] == "noun" and word.isalpha() and word.islower() and len(row["definition"]) < 80:
            found.setdefault(word, row["definition"])
    words = random.Random(0).sample(sorted(found), num_rows)
    return [{"word": word, "prompt": prompt_of(word), "completion": f" {found[word]}"} for word in words]


def make_trainer(args: argparse.Namespace, rows: list[dict[str, str]], tokenizer: Any) -> NeuronSFTTrainer:
    """A trainer of an adapter; the first rows are held out."""
    from datasets import Dataset
    from peft import LoraConfig

    data = Dataset.from_list(rows).select_columns(["prompt", "completion"])
    configuration = NeuronSFTConfig(
        output_dir=str(args.output),
        max_steps=args.max_steps,
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=max(1, args.max_steps // 10),
        max_length=64,
        pad_to_multiple_of=16,
        logging_steps=max(1, args.max_steps // 5),
        save_strategy="no",
        bf16=False,
        gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
        report_to=[],
        disable_tqdm=True,
    )
    return NeuronSFTTrainer(
        args.model,
        configuration,
        train_dataset=data.select(range(args.num_held_out, len(data))),
        eval_dataset=data.select(range(args.num_held_out)),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def answer(model: Any, tokenizer: Any, word: str) -> str:
    """What a model says that a word means."""
    inputs = tokenizer(prompt_of(word), return_tensors="pt").to(model.device)
    tokens = model.generate(**inputs, max_new_tokens=16, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    return tokenizer.decode(tokens, skip_special_tokens=True).strip().split("\n")[0]


def main() -> None:
    """Train, compare before and after, export, ask."""
    from transformers import AutoTokenizer

    args = arguments()
    rows = definitions(args.num_held_out + args.max_steps * args.batch_size)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(args.model).value)
    trainer = make_trainer(args, rows, tokenizer)
    asked = [row["word"] for row in rows[:WORDS_ASKED]]
    trainer.model.eval()
    said_before = [answer(trainer.model, tokenizer, word) for word in asked]
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    print("loss:", ", ".join(f"{e['loss']:.2f} (step {e['step']})" for e in trainer.state.log_history if "loss" in e))
    print(f"held-out loss of {args.num_held_out} definitions: {before:.3f} before, {after:.3f} after")
    trainer.save_model(str(args.output / "adapter"))
    main_export(
        args.model,
        args.output / "exported",
        adapter=args.output / "adapter",
        sequence_length=64,
        torch_dtype="float32",
        optlevel=args.optlevel,
    )
    model = NeuronModelForCausalLM.from_pretrained(args.output / "exported")
    for row, said in zip(rows[:WORDS_ASKED], said_before, strict=True):
        print(f"\n{row['word']}\n  before:  {said}\n  after:   {answer(model, tokenizer, row['word'])}")
        print(f"  WordNet: {row['completion'].strip()}")


if __name__ == "__main__":
    main()
