"""Decoders as embedders, against transformers' own model without its head."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from optimum_neuron import NeuronModelForEmbedding
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.modeling.pooling import read_recipe
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

SHAPES = {"batch_size": 2, "sequence_length": [8, 24], "optlevel": "1"}
TEXTS = ["a cat", "a much longer text", "dog"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embedding") / "qwen3"
    return save_tokenizer(save_tiny(folder, "qwen3", vocab_size=NUM_BYTE_TOKENS))


@pytest.fixture(scope="module")
def embedder(folder: Path, environment: None) -> NeuronModelForEmbedding:
    return NeuronModelForEmbedding.from_pretrained(folder, export=True, **SHAPES)


def by_hand(folder: Path, texts: list[str]) -> torch.Tensor:
    """Hidden state of the last token, one text at a time, scaled to length 1."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    original = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.no_grad():
        rows = [original(**tokenizer(text, return_tensors="pt")).last_hidden_state[:, -1] for text in texts]
    return torch.nn.functional.normalize(torch.cat(rows), dim=-1)


@pytest.mark.parametrize("side", ["left", "right"])
def test_vector_is_last_token_on_either_side_of_padding(embedder, folder, side, monkeypatch):
    expected = by_hand(folder, TEXTS)
    monkeypatch.setattr(embedder.tokenizer, "padding_side", side)
    np.testing.assert_allclose(embedder.encode(TEXTS), expected.numpy(), atol=1e-5)
    output = embedder(**embedder.tokenize(TEXTS, return_tensors="pt"))
    torch.testing.assert_close(output.sentence_embedding, expected, atol=1e-5, rtol=1e-5)
    assert embedder.recipe.pooling == ("lasttoken",) and embedder.recipe.normalize
    assert embedder.get_max_seq_length() == embedder.max_seq_length == 24


def test_two_steps_equal_one(embedder, folder, tmp_path):
    options = {"batch_size": 2, "sequence_length": [8, 24], "optlevel": "1", "tensor_parallel_size": 1}
    config = NeuronModelForEmbedding.get_neuron_config(folder, **options)
    assert (config.task, config.static_shapes) == ("feature-extraction", embedder.input_static_shapes)
    model = NeuronModelForEmbedding.export(folder, config)
    assert np.array_equal(model.encode(TEXTS), embedder.encode(TEXTS))
    model.save_pretrained(tmp_path)
    assert np.array_equal(NeuronModelForEmbedding.from_pretrained(tmp_path).encode(TEXTS), embedder.encode(TEXTS))
    with pytest.raises(ConfigError):
        NeuronModelForEmbedding.export(folder, {"batch_size": 2})


def test_folder_decides_how_tokens_are_pooled(folder, tmp_path):
    other = save_tokenizer(save_tiny(tmp_path / "qwen3", "qwen3", vocab_size=NUM_BYTE_TOKENS))
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]
    (other / "modules.json").write_text(json.dumps(modules))
    (other / "1_Pooling").mkdir()
    (other / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    model = NeuronModelForEmbedding.from_pretrained(other, export=True, **SHAPES)
    assert model.recipe.pooling == ("mean",) and not model.recipe.normalize


def test_texts_as_chat_messages(tmp_path):
    """sentence-transformers 6 renders texts of such a folder by the chat template, which gives other vectors."""
    limits = {"transformer_task": "feature-extraction", "modality_config": {"text": {}, "message": {"format": "flat"}}}
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(limits))
    with raises(ModelError, option="modality_config"):
        read_recipe(tmp_path)
    del limits["modality_config"]["message"]
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps(limits))
    assert read_recipe(tmp_path).pooling == ("mean",)
