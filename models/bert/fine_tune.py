"""Recipe: teach MiniLM to tell whether a sentence is positive on a simulated NeuronCore, then export it and use it.

    python models/bert/fine_tune.py

The data are sentences that people rated, fetched from a package. Those that accuracy is counted on are held out. The
checkpoint is in --output/checkpoint in transformers' own format, the export in --output/exported.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from optimum_neuron import NeuronModelForSequenceClassification, NeuronTrainer, NeuronTrainingArguments
from optimum_neuron.checkpoints import read_rows, resolve_model
from optimum_neuron.exporters import main_export

LABELS = ("negative", "positive")
CLEAR = 1.0
"""Ratings from -4 to 4: those nearer to 0 are left out."""
MAX_LENGTH = 64
SENTENCES = (
    "The plot makes no sense and the acting is worse.",
    "A quiet film that stays with you for days.",
    "I would not recommend this to anyone.",
    "Best phone I ever had!",
)


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="minilm", help="folder, id on the Hub, or name that neuron fetch knows")
    parser.add_argument("--output", type=Path, default=Path("sentiment_out"), help="folder of checkpoint and export")
    parser.add_argument("--max_steps", type=int, default=80, help="steps of training")
    parser.add_argument("--batch_size", type=int, default=16, help="sentences of a step")
    parser.add_argument("--num_held_out", type=int, default=200, help="sentences to count right answers on")
    parser.add_argument("--learning_rate", type=float, default=2e-4, help="at its highest")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def sentences(num_rows: int) -> list[dict[str, Any]]:
    """Sentences with a clear rating, half of them positive, in an order that is always the same.

    Args:
        num_rows: how many.
    """
    chosen, order = [], random.Random(0)
    clear = [row for row in read_rows("sentiment") if abs(row["rating"]) >= CLEAR]
    for label in (0, 1):
        found = sorted(row["text"] for row in clear if (row["rating"] > 0) == bool(label))
        chosen += [{"text": text, "label": label} for text in order.sample(found, num_rows // 2)]
    order.shuffle(chosen)
    return chosen


def make_trainer(args: argparse.Namespace, rows: list[dict[str, Any]], tokenizer: Any) -> NeuronTrainer:
    """A trainer of the whole model; the first rows are held out."""
    from transformers import AutoModelForSequenceClassification

    names = dict(enumerate(LABELS))
    model = AutoModelForSequenceClassification.from_pretrained(
        resolve_model(args.model).value, id2label=names, label2id={name: label for label, name in names.items()}
    )
    data = [{**tokenizer(row["text"], truncation=True, max_length=MAX_LENGTH), "labels": row["label"]} for row in rows]
    configuration = NeuronTrainingArguments(
        output_dir=str(args.output),
        max_steps=args.max_steps,
        per_device_train_batch_size=args.batch_size,
        per_device_eval_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        warmup_steps=max(1, args.max_steps // 10),
        logging_steps=max(1, args.max_steps // 5),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    return NeuronTrainer(
        model,
        configuration,
        train_dataset=data[args.num_held_out :],
        eval_dataset=data[: args.num_held_out],
        processing_class=tokenizer,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )


def classify(folder: Path, texts: list[str], tokenizer: Any) -> list[int]:
    """Labels that an exported folder gives."""
    model = NeuronModelForSequenceClassification.from_pretrained(folder)
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
    return model(**inputs).logits.argmax(-1).tolist()


def main() -> None:
    """Train, count right answers before and after, export, use."""
    from transformers import AutoTokenizer, set_seed

    args = arguments()
    set_seed(0)  # the head of the model starts with random numbers
    rows = sentences(args.num_held_out + args.max_steps * args.batch_size)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(args.model).value)
    trainer = make_trainer(args, rows, tokenizer)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    print("loss:", ", ".join(f"{e['loss']:.3f} (step {e['step']})" for e in trainer.state.log_history if "loss" in e))
    print(
        f"right of {args.num_held_out} held-out sentences: {before['eval_accuracy']:.1%} before, "
        f"{after['eval_accuracy']:.1%} after"
    )
    trainer.save_model(str(args.output / "checkpoint"))
    sizes = {"batch_size": 8, "sequence_length": MAX_LENGTH, "optlevel": args.optlevel}
    main_export(args.output / "checkpoint", args.output / "exported", **sizes)
    held_out = rows[: args.num_held_out]
    found = classify(args.output / "exported", [*SENTENCES, *(row["text"] for row in held_out)], tokenizer)
    for text, label in zip(SENTENCES, found, strict=False):
        print(f"{LABELS[label]:8}  {text}")
    right = sum(label == row["label"] for label, row in zip(found[len(SENTENCES) :], held_out, strict=True))
    print(f"right of {args.num_held_out} held-out sentences, exported: {right / args.num_held_out:.1%}")


if __name__ == "__main__":
    main()
