"""What the documentation of Optimum Neuron shows, and its tests do not run."""

from __future__ import annotations

import pytest
import transformers

from optimum_neuron.errors import NotExportedError
from tests.encoders import save_tiny_encoder
from tests.tiny import save_tokenizer

pytest.importorskip("optimum.neuron", reason="the sdk distribution is not installed")

TEXT = {"batch_size": 1, "sequence_length": 8, "optlevel": "1", "disable_validation": True}


def test_default_model_of_a_pipeline_is_exported(tmp_path, monkeypatch):
    from optimum.neuron import NeuronModelForSequenceClassification, _pipelines, pipeline

    folder = save_tiny_encoder(tmp_path / "bert", "bert", "text-classification")
    tokenizer = transformers.AutoTokenizer.from_pretrained(save_tokenizer(tmp_path / "tokenizer"))
    monkeypatch.setitem(_pipelines.DEFAULT_MODELS, "text-classification", str(folder))
    with pytest.raises(NotExportedError):
        pipeline("text-classification", tokenizer=tokenizer, export=False)
    classifier = pipeline("text-classification", tokenizer=tokenizer, **TEXT)
    assert isinstance(classifier.model, NeuronModelForSequenceClassification)
    original = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    expected = transformers.pipeline("text-classification", model=original, tokenizer=tokenizer)("abc")
    assert classifier("abc") == [{**expected[0], "score": pytest.approx(expected[0]["score"], abs=1e-3)}]
