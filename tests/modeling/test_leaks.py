"""Calls leak nothing: tensors, memory, descriptors, and threads are the same before and after many calls."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from optimum_neuron import (
    NeuronModelForCausalLM,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSequenceClassification,
    NeuronModelForSpeechSeq2Seq,
)
from optimum_neuron.tracing import trace, wait_for_host_code
from tests import seq2seq, speech, tiny
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.footprint import footprint

NUM_FORWARDS, NUM_GENERATES, NUM_WARM = 100, 25, 10
MAX_GROWTH_BYTES = 512 * 2**10
"""The heap moves by a few pages between calls. A copy of an input at each call is far more."""
INPUT_BYTES = 64 * 2**10
"""Size of the traced model's input. A small batch: `-O2` then packs no weights, which is host code of another kind."""

Calls = dict[str, Callable[[], Any]]
WAIT = {"wait_for_host_code": True}


def decoder(folder: Path, optlevel: str) -> Calls:
    checkpoint = tiny.save_tiny(folder, "llama", num_hidden_layers=2)
    shapes = tiny.SMALL | {"optlevel": optlevel}
    model = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **WAIT, **shapes)
    return _calls(model, {}, _text(tiny.VOCABULARY), max_new_tokens=4)


def encoder(folder: Path, optlevel: str) -> Calls:
    checkpoint = save_tiny_encoder(folder, "bert", "text-classification")
    shapes = tiny_shapes("bert", "text-classification") | {"optlevel": optlevel}
    model = NeuronModelForSequenceClassification.from_pretrained(checkpoint, export=True, **WAIT, **shapes)
    return {"forward": functools.partial(model, **_text(90))}


def t5(folder: Path, optlevel: str) -> Calls:
    checkpoint = seq2seq.save_tiny_seq2seq(folder, "t5")
    shapes = seq2seq.SHAPES | {"optlevel": optlevel, "sequence_length": seq2seq.SOURCE}
    model = NeuronModelForSeq2SeqLM.from_pretrained(checkpoint, export=True, **WAIT, **shapes)
    return _calls(model, _start(0), _text(seq2seq.VOCABULARY), max_new_tokens=4)


def whisper(folder: Path, optlevel: str) -> Calls:
    checkpoint = speech.save_tiny_speech(folder, "whisper")
    shapes = speech.SHAPES["whisper"] | {"optlevel": optlevel}
    model = NeuronModelForSpeechSeq2Seq.from_pretrained(checkpoint, export=True, **WAIT, **shapes)
    known = {"language": "en", "task": "transcribe"}
    return _calls(model, _start(50), speech.sounds("whisper", 2), max_new_tokens=4, **known)


def traced(folder: Path, optlevel: str) -> Calls:
    x = torch.rand(4, INPUT_BYTES // 16)
    net = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 8), torch.nn.GELU(), torch.nn.Linear(8, 8)).eval()
    model = trace(net, x, compiler_args=f"-O{optlevel}")
    assert wait_for_host_code(model)
    return {"forward": lambda: model(x.clone())}


def _text(num_tokens: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, num_tokens, (2, 12), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _start(token: int) -> dict[str, torch.Tensor]:
    return {"decoder_input_ids": torch.full((2, 1), token)}


def _calls(model: Any, start: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor], **options: Any) -> Calls:
    return {
        "forward": functools.partial(model, **inputs, **start),
        "generate": functools.partial(model.generate, **inputs, do_sample=False, **options),
    }


@pytest.mark.full(days=7)
@pytest.mark.parametrize(
    ("kind", "optlevel"),
    # Compiled code of T5 and Whisper runs as that of a decoder.
    [*itertools.product((decoder, encoder, traced), "12"), (t5, "1"), (whisper, "1")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_calls_do_not_leak(
    kind: Callable[[Path, str], Calls], optlevel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    problems = []
    for name, call in kind(tmp_path / "checkpoint", optlevel).items():
        num_calls = {"forward": NUM_FORWARDS, "generate": NUM_GENERATES}[name]
        _repeat(call, NUM_WARM)
        # What is opened once, such as a file of a background thread, is no leak: a leak grows in every round.
        rounds = [_grown(call, num_calls) for _ in range(2)]
        if all(rounds):
            problems.append(f"{name}: {'; '.join(rounds)}")
    assert not problems, "\n".join(problems)


def _grown(call: Callable[[], Any], num_calls: int) -> str:
    """Call `num_calls` times; return how the process grew, an empty string if it did not."""
    before = footprint()
    _repeat(call, num_calls)
    after = footprint()
    growth = after.resident_bytes - before.resident_bytes
    # Fewer is no leak: a program of an earlier test may be freed meanwhile.
    counts = ("num_tensors", "num_descriptors", "num_threads")
    more = any(getattr(after, count) > getattr(before, count) for count in counts)
    if not more and growth <= MAX_GROWTH_BYTES:
        return ""
    return f"{before} became {after}, memory grew by {growth / 1024:.0f} KiB"


def _repeat(call: Callable[[], Any], num_calls: int) -> None:
    for _ in range(num_calls):
        call()
