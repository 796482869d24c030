"""Recipe: transcribe recordings with Whisper on a simulated NeuronCore, and count the words that are wrong.

    python models/whisper/transcribe.py

Without arguments it hears five sentences of an audiobook, fetched with what was said in them, and prints the word error
rate beside that of transformers' own model. With `--audio speech.wav` it prints what is said in a file: mono, 16 bits,
at the model's sampling rate.
"""

from __future__ import annotations

import argparse
import wave
from pathlib import Path
from typing import Any

from optimum_neuron import NeuronModelForSpeechSeq2Seq, pipeline

TASK = "automatic-speech-recognition"


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", default="whisper-tiny.en", help="folder, id on the Hub, or name that neuron fetch knows"
    )
    parser.add_argument(
        "--torch_dtype", choices=("float32", "bfloat16"), default="float32", help="of the compiled model"
    )
    parser.add_argument("--optlevel", choices=("1", "2", "3"), default="2", help="1 starts at once, 2 runs faster")
    parser.add_argument("--audio", type=Path, help="transcribe this file and end")
    return parser.parse_args()


def read_audio(path: str | Path, rate: int) -> dict[str, Any]:
    """A recording as the pipeline takes it.

    Raises:
        ValueError: it is of another form than mono, 16 bits and that rate.
    """
    import numpy as np

    with wave.open(str(path)) as file:
        form = (file.getnchannels(), 8 * file.getsampwidth(), file.getframerate())
        if form != (1, 16, rate):
            raise ValueError(f"{path} has channels, bits and rate {form}; the model hears (1, 16, {rate})")
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return {"raw": samples / np.float32(1 << 15), "sampling_rate": rate}


def words_of(text: str) -> list[str]:
    """Words without case and punctuation, as they are counted."""
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer

    return BasicTextNormalizer()(text).split()


def num_wrong(said: list[str], heard: list[str]) -> int:
    """Words to change, insert or leave out to make one from the other (Levenshtein's distance)."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            best = min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
            diagonal, row[j] = row[j], best
    return row[-1]


def compare(ours: Any, theirs: Any) -> None:
    """Transcribe the clips with both and print their word error rates."""
    from optimum_neuron.checkpoints import read_rows

    rows = read_rows("librivox")
    wrong, num_words = {"ours": 0, "transformers": 0}, 0
    for row in rows:
        said = words_of(row["text"])
        num_words += len(said)
        for name, transcribe in (("ours", ours), ("transformers", theirs)):
            heard = transcribe(read_audio(row["audio"], ours.feature_extractor.sampling_rate), num_beams=1)["text"]
            wrong[name] += num_wrong(said, words_of(heard))
            if name == "ours":
                print(f"{Path(row['audio']).name}:{heard}")
    rates = ", ".join(f"{name} {count / num_words:.3f}" for name, count in wrong.items())
    print(f"word error rate over {num_words} words: {rates}")


def main() -> None:
    """Transcribe a file, or the clips."""
    import transformers
    from transformers import AutoModelForSpeechSeq2Seq

    args = arguments()
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(
        args.model, export=True, torch_dtype=args.torch_dtype, optlevel=args.optlevel
    )
    ours = pipeline(TASK, model)
    if args.audio is not None:
        print(ours(read_audio(args.audio, ours.feature_extractor.sampling_rate))["text"].strip())
        return
    original = AutoModelForSpeechSeq2Seq.from_pretrained(model.source_folder).eval()
    parts = {"tokenizer": ours.tokenizer, "feature_extractor": ours.feature_extractor}
    compare(ours, transformers.pipeline(TASK, model=original, **parts))


if __name__ == "__main__":
    main()
