"""The compiled program of a model, called with tensors of compiled shapes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from optimum_neuron import NeuronModelForCausalLM, NeuronModelForSequenceClassification
from optimum_neuron.errors import ConfigError, CoreBusyError, ShapeError
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.raising import raises

TASK = "text-classification"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("program") / "bert", "bert", TASK)


@pytest.fixture
def classifier(folder):
    return NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **tiny_shapes("bert", TASK))


def inputs() -> list[torch.Tensor]:
    ids = torch.randint(3, 90, (2, 16), generator=torch.Generator().manual_seed(0))
    return [ids, torch.ones_like(ids), torch.zeros_like(ids)]


def test_program_matches_reference_by_position_and_name(classifier, folder):
    original = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        expected = original(*inputs()).logits
    actual = classifier.model(*inputs())
    torch.testing.assert_close(actual["logits"], expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(actual[0], actual.logits)
    assert list(classifier.model.graphs["forward"]) == ["input_ids", "attention_mask", "token_type_ids"]
    with pytest.raises(ShapeError):
        classifier.model(*(tensor[:1] for tensor in inputs()))


def test_program_follows_new_weights_and_close(classifier, tmp_path):
    before = classifier.model(*inputs()).logits
    classifier.replace_weights(save_tiny_encoder(tmp_path, "bert", TASK, seed=1))
    assert not torch.equal(classifier.model(*inputs()).logits, before)
    classifier.close()
    with pytest.raises(CoreBusyError):
        classifier.model(*inputs())


def test_graph_is_found_by_shapes_or_named(model, checkpoint):
    original = transformers.AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    ids = torch.randint(3, 90, (2, 17), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(17).expand(2, -1)
    program = model.model
    with torch.no_grad():
        expected = original(ids).logits
    actual = program(ids[:, :16], positions[:, :16].contiguous()).logits
    torch.testing.assert_close(actual, expected[:, :16], atol=1e-4, rtol=1e-4)
    token = ids[:, 16:].contiguous(), positions[:, 16:].contiguous()
    with raises(ConfigError, graphs=["decode_20", "decode_48"]):
        program(*token)
    # Keys and values of the call before are in the state.
    actual = program(*token, graph="decode_20").logits
    torch.testing.assert_close(actual, expected[:, 16:], atol=1e-4, rtol=1e-4)
    program.reset()
    with raises(ConfigError, option="graph", choices=list(program.graphs)):
        program(*token, graph="decode_21")
    with raises(ShapeError, graphs=list(program.graphs)):
        program(ids)


def test_state_is_released(checkpoint):
    from tests.tiny import SHAPES

    with NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **SHAPES) as model:
        charges = len(model.loaded.charges)
        ids = torch.ones(2, 16, dtype=torch.int64)
        model.model(ids, torch.arange(16).repeat(2, 1))
        model(ids)
        assert len(model.loaded.charges) == charges + 1, "the program and the call have a set of state each"
        model.model.reset()
        assert len(model.loaded.charges) == charges
