"""`labels` of encoder-decoders: the inputs of the decoder that they make, and the loss, against transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForSeq2SeqLM

from optimum_neuron import NeuronModelForSeq2SeqLM
from optimum_neuron.errors import ShapeError
from optimum_neuron.modeling.targets import check_labels
from optimum_neuron.upstream.cache_argument import CACHE
from tests.encoders import randomize
from tests.raising import raises
from tests.seq2seq import SHAPES, TINY, VOCABULARY


def tokens(rows, columns):
    return torch.randint(3, VOCABULARY, (rows, columns), generator=torch.Generator().manual_seed(rows * 100 + columns))


def labels(rows=3, columns=6):
    result = tokens(rows, columns)
    result[0, 4:] = -100
    return result


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.full(days=7, by="pair")) for name in TINY])
def pair(request):
    """A compiled model, and the original."""
    original = AutoModelForSeq2SeqLM.from_config(CONFIG_MAPPING[request.param](**TINY[request.param])).eval()
    randomize(original)
    compiled_model = NeuronModelForSeq2SeqLM.from_model(
        original, disable_validation=True, **{**SHAPES, "sequence_length": 8}
    )
    return compiled_model, original


def test_labels_give_decoder_inputs_and_loss(pair):
    compiled_model, original = pair
    inputs = {"input_ids": tokens(3, 7), "attention_mask": torch.ones(3, 7, dtype=torch.long), "labels": labels()}
    inputs["attention_mask"][1, 5:] = 0
    with torch.no_grad():
        expected = original(**inputs)
    actual = compiled_model(**inputs)
    torch.testing.assert_close(actual.loss, expected.loss, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(actual.logits, expected.logits, atol=5e-4, rtol=1e-3)
    assert actual.get(CACHE) is None
    assert torch.equal(compiled_model(**inputs, return_dict=False)[0], actual.loss)


def test_targets_with_labels(pair):
    compiled_model, original = pair
    inputs = {"input_ids": tokens(3, 7), "labels": labels(), "decoder_input_ids": tokens(3, 6)}
    with torch.no_grad():
        torch.testing.assert_close(compiled_model(**inputs).loss, original(**inputs).loss, atol=1e-4, rtol=1e-4)


def test_loss_without_labels_is_nan_as_in_transformers(pair):
    compiled_model, original = pair
    inputs = {"input_ids": tokens(1, 4), "labels": torch.full((1, 3), -100), "decoder_input_ids": tokens(1, 3)}
    with torch.no_grad():
        assert compiled_model(**inputs).loss.isnan() and original(**inputs).loss.isnan()


@pytest.mark.parametrize(
    ("labels", "details"),
    [
        (torch.zeros(3, dtype=torch.long), {"shape": [3]}),
        (torch.zeros(3, 0, dtype=torch.long), {"shape": [3, 0]}),
        (torch.tensor([[5, VOCABULARY]]), {"token": VOCABULARY}),
        (torch.tensor([[-1, 5]]), {"token": -1}),
    ],
)
def test_invalid_label_ids(labels, details):
    with raises(ShapeError, input="labels", **details):
        check_labels(labels, VOCABULARY)


def test_labels_with_other_shape_than_targets(pair):
    compiled_model, _ = pair
    with raises(ShapeError, input="labels", shape=[1, 4]):
        compiled_model(input_ids=tokens(1, 4), labels=tokens(1, 4), decoder_input_ids=tokens(1, 3))
    with raises(ShapeError, num_tokens=13):
        compiled_model(input_ids=tokens(1, 4), labels=tokens(1, 13))
