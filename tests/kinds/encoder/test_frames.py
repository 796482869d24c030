"""Results with fewer frames than their inputs: the rule is measured, and padding is cut off by it."""

from __future__ import annotations

import importlib

import pytest
import torch
import transformers

from optimum_neuron import NeuronModelForCTC
from optimum_neuron.engine import OutputAxis
from optimum_neuron.errors import ValidationError
from optimum_neuron.exporters.validation import statistics
from optimum_neuron.kinds import kind_of
from optimum_neuron.kinds.encoder.inputs import step_rules
from tests.encoders import FRAMES, SAMPLES, save_tiny_encoder

entry = importlib.import_module("optimum_neuron.kinds.encoder.entry")

CTC = "automatic-speech-recognition"


@pytest.mark.parametrize("size", [40, 41, 47, 48])
@pytest.mark.parametrize("rule", [(1, 8), (13, 4), (-1, 2), (5, 1), (20, 3)])
def test_rules_are_measured(rule, size):
    window, stride = rule
    calls = []

    def lengths(at):
        calls.append(at)
        return 3, (at - window) // stride + 1

    assert step_rules(lengths, size, size // 2) == [rule]
    assert len(calls) <= 14 and min(calls) >= size // 2


def exported(folder, model_type, **options):
    return NeuronModelForCTC.from_pretrained(folder, export=True, optlevel="1", **options)


@pytest.mark.full(days=6)
@pytest.mark.parametrize("num_frames", [56, 57, FRAMES["parakeet_ctc"]])
def test_frames_of_padding_are_cut(num_frames, tmp_path):
    folder = save_tiny_encoder(tmp_path, "parakeet_ctc", CTC)
    model = exported(folder, "parakeet_ctc", batch_size=2, nb_max_frames=num_frames)
    assert {error.output for error in model.prepared.validation} == {"forward: logits", "padded: logits"}
    original = transformers.AutoModelForCTC.from_pretrained(folder, dtype=torch.float32).eval()
    frames = torch.randn(2, num_frames - 11, 16, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, num_frames - 11, dtype=torch.int64)
    mask[1, 30:] = 0
    logits = model(input_features=frames, attention_mask=mask).logits
    with torch.no_grad():
        whole = original(input_features=frames, attention_mask=mask).logits
        alone = original(input_features=frames[1:, :30], attention_mask=mask[1:, :30]).logits
    assert logits.shape == whole.shape
    assert torch.allclose(logits[:1], whole[:1], atol=1e-4)
    assert torch.allclose(logits[1:, : alone.shape[1]], alone, atol=1e-4)


@pytest.mark.full(days=2)
def test_frames_of_the_wrong_number_are_found(tmp_path, monkeypatch):
    kind, rounded_down = kind_of(CTC, "parakeet_ctc"), lambda self, length: (length - self.window) // self.stride
    real = type(kind).scenarios

    def scenarios(*arguments):
        monkeypatch.setattr(OutputAxis, "size", rounded_down)  # the engine cuts too much; the rule was right
        return real(*arguments)

    monkeypatch.setattr(type(kind), "scenarios", scenarios)
    with pytest.raises(ValidationError) as error:
        damaged(tmp_path, monkeypatch)
    assert error.value.details["shapes"] == [[2, 7, 24], [2, 8, 24]]


@pytest.mark.full(days=2)
def test_frames_that_read_padding_are_found(tmp_path, monkeypatch):
    real = entry.Forward.forward

    def without_mask(self, frames, mask):
        return real(self, frames, torch.ones_like(mask))

    monkeypatch.setattr(entry.Forward, "forward", without_mask)
    with pytest.raises(ValidationError) as error:
        damaged(tmp_path, monkeypatch)
    assert error.value.details["scenario"] == "padded"


def damaged(folder, monkeypatch):
    """Export with code of another content, to which records of earlier comparisons do not apply."""
    monkeypatch.setattr(statistics, "_versions", lambda: {"package": "damaged"})
    options = {"batch_size": 2, "nb_max_frames": 64, "disable_neuron_cache": True}
    return exported(save_tiny_encoder(folder, "parakeet_ctc", CTC), "parakeet_ctc", **options)


@pytest.mark.full(days=2)
@pytest.mark.parametrize("num_samples", [SAMPLES, SAMPLES - 8])
def test_frames_that_see_padding_are_exact(num_samples, tmp_path):
    """Convolutions of an adapter read the frames beside each one, so padding would change results."""
    folder = save_tiny_encoder(tmp_path, "wav2vec2", CTC, add_adapter=True, num_adapter_layers=1)
    model = exported(folder, "wav2vec2", audio_sequence_length=num_samples)
    assert "audio_sequence_length" in model.signature.exact and model.signature.padded == {}
