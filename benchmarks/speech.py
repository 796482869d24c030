"""Speech to text: milliseconds for whisper-tiny.en on ten seconds of a book, against transformers."""

from __future__ import annotations

import functools
import statistics
from typing import Any

from .harness import Row, Settings, in_turn, ratio, rows_of, seconds

MODEL, CLIPS = "whisper-tiny.en", "librivox"
NUM_SECONDS = 10
DTYPES = {"bf16": "bfloat16", "fp32": "float32"}


def run(settings: Settings) -> list[Row]:
    """Measure `generate`, from the spectrogram to the tokens, greedy, in turn; every contender hears the same."""
    from optimum_neuron import NeuronModelForSpeechSeq2Seq

    features = _features()
    models: dict[str, Any] = {}
    for short, dtype in DTYPES.items():
        models[f"ours, {short}"] = NeuronModelForSpeechSeq2Seq.from_pretrained(
            MODEL, export=True, torch_dtype=dtype, wait_for_host_code=True
        )
        models[f"transformers eager, {short}"] = _original(dtype)
        models[f"transformers torch.compile, {short}"] = _compiled(dtype)
    tokens = {name: model.generate(features.to(model.dtype)).shape[1] for name, model in models.items()}

    def measure(model: Any) -> float:
        given = features.to(model.dtype)
        return 1e3 * seconds(lambda: model.generate(given))

    figures = in_turn({name: functools.partial(measure, model) for name, model in models.items()}, settings.rounds)
    note = f"{NUM_SECONDS} s of speech, batch 1, {' or '.join(map(str, sorted(set(tokens.values()))))} tokens"
    rows = rows_of(figures, "ms", note=note)
    ours = min((name for name in figures if name.startswith("ours")), key=lambda name: statistics.median(figures[name]))
    for kind in ("eager", "torch.compile"):
        theirs = {name: statistics.median(values) for name, values in figures.items() if kind in name}
        best = min(theirs, key=lambda name: theirs[name])
        rows.append(ratio(f"{best} over {ours}", figures[best], figures[ours], note="their better dtype; bar: 2.0"))
    return rows


def _features() -> Any:
    """The spectrogram of the first seconds of all clips, one after the other."""
    import wave

    import numpy as np
    from transformers import AutoFeatureExtractor

    from optimum_neuron.checkpoints import fetch, read_rows

    samples = []
    for row in read_rows(CLIPS):
        with wave.open(row["audio"]) as file:
            samples.append(np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(1 << 15))
    extractor = AutoFeatureExtractor.from_pretrained(fetch(MODEL))
    rate = extractor.sampling_rate
    return extractor(
        np.concatenate(samples)[: NUM_SECONDS * rate], sampling_rate=rate, return_tensors="pt"
    ).input_features


def _original(dtype: str) -> Any:
    import torch
    from transformers import WhisperForConditionalGeneration

    from optimum_neuron.checkpoints import fetch

    return WhisperForConditionalGeneration.from_pretrained(fetch(MODEL), dtype=getattr(torch, dtype)).eval()


def _compiled(dtype: str) -> Any:
    """As transformers' documentation compiles models that generate: a static cache, encoder and step compiled."""
    import torch

    model = _original(dtype)
    model.generation_config.cache_implementation = "static"
    model.model.encoder.forward = torch.compile(model.model.encoder.forward)
    model.forward = torch.compile(model.forward)
    return model
