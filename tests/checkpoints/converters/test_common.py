from __future__ import annotations

import pytest
import torch
from transformers import AlbertConfig, AlbertForMaskedLM, AutoModelForMaskedLM, AutoTokenizer

from optimum_neuron.checkpoints.converters.common import save, save_word_tokenizer
from optimum_neuron.errors import ModelError


def tiny() -> AlbertForMaskedLM:
    sizes = {"vocab_size": 8, "embedding_size": 4, "hidden_size": 8, "intermediate_size": 8}
    return AlbertForMaskedLM(AlbertConfig(**sizes, num_attention_heads=2, num_hidden_layers=1)).eval()


def test_every_tensor_is_mapped(tmp_path):
    tensors = {name: tensor.clone() for name, tensor in tiny().state_dict().items()}
    del tensors["predictions.decoder.weight"]  # tied to the embedding
    save(tiny(), tensors, tmp_path)
    saved = AutoModelForMaskedLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(saved[name], tensor) for name, tensor in tensors.items())


def test_all_misfit_tensors_are_named(tmp_path):
    tensors = dict(tiny().state_dict())
    del tensors["predictions.dense.weight"]
    tensors["albert.pooler.weight"] = torch.zeros(1)
    tensors["predictions.LayerNorm.bias"] = torch.zeros(5)
    with pytest.raises(ModelError) as excinfo:
        save(tiny(), tensors, tmp_path / "out")
    assert excinfo.value.details["problems"] == [
        "albert.pooler.weight is unknown",
        "predictions.LayerNorm.bias has (5,), the model (4,)",
        "predictions.dense.weight is missing",
    ]
    assert not (tmp_path / "out").exists()


def test_unknown_words_map_to_unknown_token(tmp_path):
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    save_word_tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "A", "Br"], "Br|[A-Z]", tmp_path, **special)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("ABrB?A").input_ids == [2, 4, 5, 1, 1, 4, 3]
