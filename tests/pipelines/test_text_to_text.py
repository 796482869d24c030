"""Text to text, summarization, and translation over compiled models match the reference model's `generate`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from optimum_neuron import NeuronModelForSeq2SeqLM, pipeline
from optimum_neuron.errors import ConfigError, ModelError, ShapeError
from tests.encoders import save_letters
from tests.raising import raises
from tests.seq2seq import SHAPES, save_tiny_seq2seq

PREFIXES = {"summarization": {"prefix": "sum "}, "translation_en_to_de": {"prefix": "de "}}
OPTIONS = {"max_new_tokens": 6, "no_repeat_ngram_size": 1, "num_beams": 1, "do_sample": False}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text_to_text") / "t5"
    return save_letters(save_tiny_seq2seq(folder, "t5", task_specific_params=PREFIXES))


@pytest.fixture(scope="module")
def model(checkpoint):
    return NeuronModelForSeq2SeqLM.from_pretrained(checkpoint, export=True, **SHAPES)


def answer(checkpoint, text: str, **options: Any) -> list[str]:
    """Text that the reference model generates."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    original = AutoModelForSeq2SeqLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    inputs = tokenizer(text, return_tensors="pt")
    ids = original.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], **{**OPTIONS, **options})
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.full(days=7)
@pytest.mark.parametrize(
    ("name", "key", "prefix"),
    [
        ("text2text-generation", "generated_text", ""),
        ("summarization", "summary_text", "sum "),
        ("translation", "translation_text", ""),
        ("translation_en_to_de", "translation_text", "de "),
    ],
)
def test_answers_match_reference(model, checkpoint, name, key, prefix):
    run = pipeline(name, model)
    assert run("abc", **OPTIONS) == [{key: answer(checkpoint, prefix + "abc")[0]}]
    texts = ["abc", "hello you"]
    assert run(texts, **OPTIONS) == [{key: answer(checkpoint, prefix + text)[0]} for text in texts]


def test_several_answers(model, checkpoint):
    run = pipeline("text2text-generation", model, **OPTIONS)
    beams = {"num_beams": 3, "num_return_sequences": 2}
    expected = [{"generated_text": text} for text in answer(checkpoint, "abc", **beams)]
    assert run("abc", **beams) == expected
    assert run(["abc", "abc"], **beams) == [expected, expected]


def test_prefix_can_be_named(model, checkpoint):
    result = pipeline("summarization", model)("abc", prefix="x", **OPTIONS)
    assert result == [{"summary_text": answer(checkpoint, "xabc")[0]}]


def test_checkpoint_is_exported_by_pipeline(checkpoint):
    run = pipeline("summarization", checkpoint, export=True, **SHAPES)
    assert run("abc", **OPTIONS) == [{"summary_text": answer(checkpoint, "sum abc")[0]}]


def test_long_text_is_refused_or_truncated(model):
    run = pipeline("text2text-generation", model, **OPTIONS)
    with raises(ShapeError, size=42):
        run("x" * 40)
    assert run("x" * 40, truncation=True) == run("x" * 14)


@pytest.mark.parametrize("texts", ["", [], ["a", " "], None, [3]], ids=repr)
def test_invalid_texts_are_refused(model, texts):
    with raises(ConfigError, task="summarization"):
        pipeline("summarization", model)(texts)


def test_languages_need_a_multilingual_tokenizer(model):
    with raises(ConfigError, src_lang="en", tgt_lang="de"):
        pipeline("translation", model)("abc", src_lang="en", tgt_lang="de")


def test_language_tokens_come_from_tokenizer(model, monkeypatch):
    run = pipeline("translation", model)

    def build(text: str, *, src_lang: str, tgt_lang: str, **options: Any) -> Any:
        assert (src_lang, tgt_lang) == ("en", "de")
        return {**run.tokenizer(text, **options), "forced_bos_token_id": 9}

    monkeypatch.setattr(run.tokenizer, "_build_translation_inputs", build, raising=False)
    result = run("abc", src_lang="en", tgt_lang="de", **OPTIONS)[0]["translation_text"]
    assert result.startswith(run.tokenizer.decode([9]))
    with raises(ConfigError, src_lang="en", tgt_lang=None):
        run("abc", src_lang="en")


def test_unknown_pipeline_name_is_refused(model):
    with raises(ModelError, option="task", value="translations"):
        pipeline("translations", model)
