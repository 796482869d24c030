"""Recipe: teach Whisper the spelling of transcripts on a simulated NeuronCore, then export it and use it.

    python models/whisper/fine_tune.py

Whisper writes capitals and punctuation, the transcripts of the audiobook have neither. Three recordings are trained on,
two are held out. The checkpoint is in --output/checkpoint in transformers' own format, the export in --output/exported.
"""

from __future__ import annotations

import argparse
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch

from optimum_neuron import NeuronModelForSpeechSeq2Seq, NeuronTrainer, NeuronTrainingArguments, pipeline
from optimum_neuron.checkpoints import read_rows, resolve_model
from optimum_neuron.exporters import main_export

HELD_OUT = ("0890.wav", "0930.wav")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="whisper-tiny.en", help="folder, id on the Hub, or name that neuron fetch knows"
    )
    parser.add_argument("--output", type=Path, default=Path("whisper_out"), help="folder of checkpoint and export")
    parser.add_argument("--max_steps", type=int, default=10, help="steps of training, three recordings each")
    parser.add_argument("--learning_rate", type=float, default=2e-5, help="at its highest")
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="1", help="1 starts at once, 2 runs faster")
    return parser.parse_args()


def samples_of(path: str) -> np.ndarray:
    """The samples of a recording (mono, 16 bits), from -1 to 1."""
    with wave.open(path) as file:
        return np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(1 << 15)


def recordings(processor: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows to train on and rows that are held out: spectrograms and tokens, with what was said."""
    trained, held_out = [], []
    for row in read_rows("librivox"):
        samples = samples_of(row["audio"])
        features = processor(samples, sampling_rate=processor.feature_extractor.sampling_rate, return_tensors="pt")
        found = {
            "input_features": features["input_features"][0],
            "labels": processor.tokenizer(row["text"]).input_ids[1:],  # the model begins with the first by itself
            "samples": samples,
            "text": row["text"],
        }
        (held_out if Path(row["audio"]).name in HELD_OUT else trained).append(found)
    return trained, held_out


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch, with labels padded by the number that losses leave out."""
    labels = [torch.tensor(row["labels"]) for row in rows]
    return {
        "input_features": torch.stack([row["input_features"] for row in rows]),
        "labels": torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-100),
    }


def make_trainer(args: argparse.Namespace, processor: Any, trained: Any, held_out: Any) -> NeuronTrainer:
    """A trainer of the decoder; the encoder hears well enough."""
    from transformers import AutoModelForSpeechSeq2Seq

    model = AutoModelForSpeechSeq2Seq.from_pretrained(resolve_model(args.model).value, dtype=torch.float32)
    model.model.encoder.requires_grad_(False)
    configuration = NeuronTrainingArguments(
        output_dir=str(args.output),
        max_steps=args.max_steps,
        per_device_train_batch_size=len(trained),
        per_device_eval_batch_size=len(held_out),
        learning_rate=args.learning_rate,
        logging_steps=max(1, args.max_steps // 5),
        save_strategy="no",
        remove_unused_columns=False,
        report_to=[],
        disable_tqdm=True,
    )
    return NeuronTrainer(
        model,
        configuration,
        train_dataset=trained,
        eval_dataset=held_out,
        data_collator=collate,
        processing_class=processor,
    )


def main() -> None:
    """Train, compare the held-out loss before and after, export, transcribe."""
    from transformers import AutoProcessor

    args = arguments()
    processor = AutoProcessor.from_pretrained(resolve_model(args.model).value)
    trained, held_out = recordings(processor)
    trainer = make_trainer(args, processor, trained, held_out)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    print("loss:", ", ".join(f"{e['loss']:.2f} (step {e['step']})" for e in trainer.state.log_history if "loss" in e))
    print(f"held-out loss of {len(held_out)} recordings: {before:.3f} before, {after:.3f} after")
    trainer.save_model(str(args.output / "checkpoint"))
    main_export(args.output / "checkpoint", args.output / "exported", torch_dtype="float32", optlevel=args.optlevel)
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(args.output / "exported")
    transcribe = pipeline("automatic-speech-recognition", model)
    for row in held_out:
        sound = {"raw": row["samples"], "sampling_rate": processor.feature_extractor.sampling_rate}
        print(f"heard: {transcribe(sound)['text'].strip()}\nsaid:  {row['text']}")


if __name__ == "__main__":
    main()
