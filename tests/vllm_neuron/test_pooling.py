"""`embed`, `classify`, and `score` against transformers."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    MistralConfig,
    MistralModel,
)

from optimum_neuron.errors import ConfigError
from tests.raising import raises
from tests.tiny import NUM_BYTE_TOKENS, save_tokenizer

if importlib.util.find_spec("pydantic") is None:
    pytest.skip("pydantic is not installed", allow_module_level=True)

from optimum_neuron.vllm_neuron import LLM, PoolingParams  # noqa: E402

SIZES = dict(vocab_size=NUM_BYTE_TOKENS, hidden_size=32, intermediate_size=64, num_hidden_layers=1)
SIZES |= dict(num_attention_heads=4, max_position_embeddings=32)
TEXTS = ["Hello", "The capital of France"]


@pytest.fixture(autouse=True)
def quick_compiles(monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "-O1")


def save(model, folder):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.2)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="right")  # BERT counts positions from the left
    tokenizer.save_pretrained(folder)
    return model.eval().requires_grad_(False), tokenizer


def test_vectors_of_a_decoder_are_those_of_its_last_token(tmp_path):
    save(MistralModel(MistralConfig(**SIZES, num_key_value_heads=2)), tmp_path)
    model, tokenizer = (
        AutoModel.from_pretrained(tmp_path).requires_grad_(False),
        AutoTokenizer.from_pretrained(tmp_path),
    )
    llm = LLM(str(tmp_path), task="embed", max_num_seqs=1, max_model_len=32, dtype="float32")
    for text, output in zip(TEXTS, llm.embed(TEXTS), strict=True):
        assert output.prompt_token_ids == tokenizer.encode(text) and output.finished
        last = model(torch.tensor([output.prompt_token_ids])).last_hidden_state[0, -1]
        torch.testing.assert_close(torch.tensor(output.outputs.embedding), last / last.norm(), atol=1e-4, rtol=1e-3)
    (pooled,) = llm.encode(TEXTS[0], pooling_task="embed")
    assert pooled.outputs.data.tolist() == llm.embed(TEXTS[0])[0].outputs.embedding
    (one,) = llm.score(*TEXTS)
    vectors = [torch.tensor(output.outputs.embedding) for output in llm.embed(TEXTS)]
    assert one.outputs.score == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    with raises(ConfigError, option="task"):
        llm.generate("a")
    with raises(ConfigError, option="softmax"):
        PoolingParams(softmax=False)
    llm.llm_engine.core.close()


@pytest.mark.parametrize("num_labels", [3, 1])
def test_classes_and_scores(tmp_path, num_labels):
    config = BertConfig(**SIZES, num_labels=num_labels, pad_token_id=0)
    model, tokenizer = save(BertForSequenceClassification(config), tmp_path)
    llm = LLM(str(tmp_path), task="classify", max_num_seqs=1, max_model_len=32, dtype="float32")
    for text, output in zip(TEXTS, llm.classify(TEXTS), strict=True):
        logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        expected = logits.softmax(-1) if num_labels > 1 else logits.sigmoid()
        torch.testing.assert_close(torch.tensor(output.outputs.probs), expected, atol=1e-4, rtol=1e-3)
    if num_labels == 1:
        (one,) = llm.score("a", "b")
        features = tokenizer("a", "b", return_tensors="pt")
        assert one.outputs.score == pytest.approx(float(model(**features).logits.sigmoid()), abs=1e-4)
    llm.llm_engine.core.close()
