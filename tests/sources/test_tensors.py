"""Checkpoints without all weights: refused, or filled with random numbers where the user allows it."""

from __future__ import annotations

import logging
import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from optimum_neuron import (
    NeuronModelForFeatureExtraction,
    NeuronModelForMaskedLM,
    NeuronModelForSequenceClassification,
    main_export,
)
from optimum_neuron.errors import ConfigError, WeightsError
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.raising import raises

SHAPES = tiny_shapes("bert", "text-classification")
FILLED = SHAPES | {"allow_missing_weights": True}
REFUSED = SHAPES | {"allow_missing_weights": False}
FILE = "model.safetensors"
POOLER = ["pooler.dense.bias", "pooler.dense.weight"]


@pytest.fixture(scope="module")
def headless(tmp_path_factory):
    """BERT for masked tokens: it has neither a pooler nor a head for other tasks."""
    return save_tiny_encoder(tmp_path_factory.mktemp("bert"), "bert", "fill-mask")


@pytest.mark.parametrize("options", [{}, {"disable_validation": True}])
def test_missing_weights_error_names_the_option(headless, options):
    with raises(WeightsError, problems=POOLER, is_head=True):
        NeuronModelForFeatureExtraction.from_pretrained(headless, export=True, **REFUSED, **options)


def test_checkpoint_without_a_layer_is_damaged(headless, tmp_path):
    shutil.copytree(headless, tmp_path / "damaged")
    weights = load_file(headless / "model.safetensors")
    lost = sorted(name for name in weights if ".layer.0." in name)
    save_file({name: tensor for name, tensor in weights.items() if name not in lost}, tmp_path / "damaged" / FILE)
    with pytest.raises(WeightsError) as excinfo:
        NeuronModelForMaskedLM.from_pretrained(tmp_path / "damaged", export=True, **SHAPES)
    assert excinfo.value.details == {"problems": lost, "is_head": False}


@pytest.mark.parametrize("options", [SHAPES, FILLED], ids=["default", "allowed"])
def test_missing_weights_are_filled_deterministically_with_a_warning(headless, tmp_path, caplog, options):
    ids = torch.randint(3, 90, (2, 8), generator=torch.Generator().manual_seed(0))
    before = torch.random.get_rng_state()
    with caplog.at_level(logging.WARNING, logger="optimum_neuron"):
        model = NeuronModelForFeatureExtraction.from_pretrained(headless, export=True, **options)
    assert torch.equal(torch.random.get_rng_state(), before), "the user's random numbers go on as before"
    assert any(all(name in record.getMessage() for name in POOLER) for record in caplog.records)
    assert all(name in model.describe()["weights"]["reason"] for name in POOLER)
    report = main_export(headless, tmp_path / "out", task="feature-extraction", **options).to_dict()
    assert all(error["ok"] for error in report["validation"]) and report["random_weights"] == POOLER
    caplog.clear()
    loaded_model = NeuronModelForFeatureExtraction.from_pretrained(tmp_path / "out")
    assert any(all(name in record.getMessage() for name in POOLER) for record in caplog.records)
    assert loaded_model.config.neuron["random_weights"] == loaded_model.describe()["random_weights"] == POOLER
    assert torch.equal(loaded_model(ids).pooler_output, model(ids).pooler_output)


def test_complete_checkpoint_is_mapped_with_or_without_option(tmp_path, caplog):
    folder = save_tiny_encoder(tmp_path, "bert", "text-classification")
    with caplog.at_level(logging.WARNING, logger="optimum_neuron"):
        model = NeuronModelForSequenceClassification.from_pretrained(folder, export=True, **FILLED)
    assert model.describe()["weights"]["reason"] == "mapped from the checkpoint's safetensors" and not caplog.records


def test_model_in_memory_has_no_such_option(headless):
    with raises(ConfigError, options=["allow_missing_weights"]):
        NeuronModelForFeatureExtraction.from_model(transformers.AutoModel.from_pretrained(headless), **FILLED)
