"""Texts of streams add up to the text of the answer, and end at stop strings."""

from __future__ import annotations

import random

import pytest

from optimum_neuron.serving.text import Detokenizer, TextStream
from tests.tiny import save_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(save_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_add_up(tokenizer, size):
    text = "naïve 漢字 and 🙂 and plain"
    ids = tokenizer.encode(text, add_special_tokens=False)
    detokenizer = Detokenizer(tokenizer, [5, 6, 7])
    pieces = [detokenizer.feed(ids[start : start + size]) for start in range(0, len(ids), size)]
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)


def test_an_incomplete_character_is_delivered_at_the_end(tokenizer):
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("a🙂", add_special_tokens=False)
    assert stream.feed(ids[:3]) == ""
    assert stream.flush().startswith("a\ufffd")


@pytest.mark.parametrize("included", [False, True])
def test_stop_strings_cut_wherever_pieces_end(tokenizer, included):
    draw, text, stops = random.Random(0), "one two END three STOP four", ("STOP", "END three")
    expected = "one two END three" if included else "one two "
    ids = tokenizer.encode(text, add_special_tokens=False)
    for _ in range(20):
        stream, shown, rest = TextStream(tokenizer, stop=stops, include_stop=included), "", list(ids)
        while rest and stream.stopped_by is None:
            size = draw.randint(1, 9)
            shown += stream.feed(rest[:size])
            rest = rest[size:]
        assert shown + stream.flush() == expected
        assert stream.stopped_by == "END three"


def test_a_begun_stop_string_is_held_back_until_the_end(tokenizer):
    ids = tokenizer.encode("see ST", add_special_tokens=False)
    stream = TextStream(tokenizer, stop=("STOP",))
    assert stream.feed(ids) == "see "
    assert stream.flush() == "ST"
    assert stream.stopped_by is None


def test_stop_strings_wait_for_the_least_number_of_tokens(tokenizer):
    ids = tokenizer.encode("x.x.x", add_special_tokens=False)
    stream = TextStream(tokenizer, stop=(".",), min_tokens=2)
    assert stream.feed(ids) + stream.flush() == "x.x"
