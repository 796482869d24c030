"""Answers from logits set by hand, with a tokenizer that divides words: every number here is computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from optimum_neuron import pipeline
from optimum_neuron.errors import ConfigError
from tests.encoders import save_tiny_encoder

CONTEXT = "Unbelievable works , unbelievable"
TOKENS = ["<s>", "what", "</s>", "un", "##bel", "##ievable", "works", ",", "un", "##bel", "##ievable", "</s>"]


def save_pieces(folder: Path) -> Path:
    """Write a tokenizer of words and pieces of words."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["<pad>", "<s>", "</s>", "<unk>", "what", "is", "it", "un", "##bel", "##ievable", "works", ","]
    pieces = models.WordPiece(vocab={token: i for i, token in enumerate(vocabulary)}, unk_token="<unk>")
    tokenizer = Tokenizer(pieces)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B:1 </s>:1", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    names = {"pad": "<pad>", "bos": "<s>", "eos": "</s>", "unk": "<unk>", "cls": "<s>", "sep": "</s>"}
    options = {"model_max_length": 24, "model_input_names": ["input_ids", "attention_mask"]}
    options |= {f"{name}_token": token for name, token in names.items()}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    folder = save_pieces(save_tiny_encoder(tmp_path_factory.mktemp("pieces"), "bert", "question-answering"))
    return pipeline("question-answering", folder, export=True, batch_size=2, sequence_length=24, optlevel="1")


def answered(answering, starts, ends, **options):
    """Answers where these tokens have these probabilities to be the first and the last."""
    windows = answering.preprocess({"question": "what", "context": CONTEXT})
    ids = windows.pop("inputs")["input_ids"]
    assert answering.tokenizer.convert_ids_to_tokens(ids[0]) == TOKENS
    logits = {"start": starts, "end": ends}
    for name, probabilities in logits.items():
        row = [math.log(probabilities[place]) if place in probabilities else -math.inf for place in range(len(TOKENS))]
        windows[name] = torch.tensor([row])
    return answering.postprocess(windows, **options)


def row(score, start, end):
    return {"score": pytest.approx(score), "start": start, "end": end, "answer": CONTEXT[start:end]}


STARTS, ENDS = {0: 0.25, 3: 0.25, 4: 0.5}, {0: 0.25, 5: 0.75}
"""A word that begins with its second piece, or with its first; or no answer."""


def test_answer_is_aligned_to_words_by_default(answering):
    assert answered(answering, STARTS, ENDS) == row(0.375 + 0.1875, 0, 12)
    assert answered(answering, STARTS, ENDS, align_to_words=True) == row(0.375 + 0.1875, 0, 12)
    assert answered(answering, STARTS, ENDS, align_to_words=False) == row(0.375, 2, 12)


def test_equal_answers_are_one(answering):
    assert answered(answering, STARTS, ENDS, top_k=5) == row(0.375 + 0.1875, 0, 12)
    pieces = answered(answering, STARTS, ENDS, top_k=5, align_to_words=False)
    assert pieces == [row(0.375, 2, 12), row(0.1875, 0, 12)]
    # The same word again, in small letters.
    both = answered(answering, {3: 0.6, 8: 0.4}, {5: 0.6, 10: 0.4}, top_k=3, max_answer_len=3)
    assert both == row(0.36 + 0.16, 0, 12)


@pytest.mark.parametrize(
    ("starts", "ends", "aligned", "pieces"),
    [
        ({3: 1.0}, {3: 1.0}, (0, 12), (0, 2)),
        ({4: 1.0}, {4: 1.0}, (0, 12), (2, 5)),
        ({5: 1.0}, {6: 1.0}, (0, 18), (5, 18)),
        ({6: 1.0}, {8: 1.0}, (13, 33), (13, 23)),
        ({7: 1.0}, {7: 1.0}, (19, 20), (19, 20)),
    ],
)
def test_both_ends_are_aligned(answering, starts, ends, aligned, pieces):
    assert answered(answering, starts, ends) == row(1.0, *aligned)
    assert answered(answering, starts, ends, align_to_words=False) == row(1.0, *pieces)


def test_no_answer_has_its_own_score(answering):
    answers = answered(answering, STARTS, ENDS, handle_impossible_answer=True, top_k=2)
    assert answers == [row(0.5625, 0, 12), row(0.0625, 0, 0)]


def test_words_outside_of_a_window_are_not_answers(answering):
    # A window of four tokens of the context, from the second piece of a word on.
    options = {"max_seq_len": 8, "doc_stride": 3}
    windows = answering.preprocess({"question": "what", "context": CONTEXT}, **options)
    tokens = [answering.tokenizer.convert_ids_to_tokens(ids) for ids in windows.pop("inputs")["input_ids"]]
    assert tokens[1][3:7] == ["##bel", "##ievable", "works", ","]
    for name in ("start", "end"):
        windows[name] = torch.full((len(tokens), 8), -math.inf)
        windows[name][:, 0] = 0
        windows[name][1, 4] = 9
    assert (answered := answering.postprocess(windows))["start"] == 2 and answered["end"] == 12


def test_long_questions_are_cut(answering):
    def ids(question, **options):
        return answering.preprocess({"question": question, "context": "works"}, **options)["inputs"][
            "input_ids"
        ].tolist()

    assert ids("what is it", max_question_len=2) == ids("what is") != ids("what is it")
    assert ids("unbelievable", max_question_len=1) == ids("un")
    assert ids("what", max_question_len=9) == ids("what")
    answer = answering("what is it", CONTEXT, max_question_len=1, align_to_words=False)
    assert answer == answering("what", CONTEXT, align_to_words=False)
    with pytest.raises(ConfigError) as error:
        answering("what", CONTEXT, align_to_word=False)
    assert error.value.details == {"options": ["align_to_word"]}
