from __future__ import annotations

import json

import pytest

from optimum_neuron.buckets import read_lengths
from optimum_neuron.errors import ConfigError, ModelError

TEXTS = ["Hello", "Good morning", "x"]
"""The tokenizer of the tests has one token for each byte."""


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("lengths.txt", "12\n\n500\n", None),
        ("lengths", "12\n500", None),
        ("lengths.csv", "tokens\n12\n500\n", None),
        ("lengths.CSV", "\ufeffid,tokens\n1,12\n2,500\n", "tokens"),
        ("lengths.jsonl", "12\n500\n", None),
        ("lengths.ndjson", '{"tokens": 12}\n\n{"tokens": "500"}\n', None),
        ("ids.jsonl", json.dumps({"ids": [1] * 12}) + "\n" + json.dumps({"ids": [1] * 500}), None),
        ("lengths.json", '{"id": 1, "tokens": 12}\n{"tokens": 500, "id": 2}\n', "tokens"),
    ],
)
def test_numbers_of_tokens(write, name, text, column):
    assert read_lengths(write(name, text), column=column) == [12, 500]


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("texts.txt", "\n".join(TEXTS), None),
        ("texts.csv", "id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(TEXTS)), "text"),
        ("texts.jsonl", "\n".join(json.dumps({"text": text}) for text in TEXTS), None),
        ("texts.jsonl", "\n".join(map(json.dumps, TEXTS)), None),
    ],
)
def test_texts_are_counted_in_tokens(write, checkpoint, name, text, column):
    assert read_lengths(write(name, text), tokenizer=checkpoint, column=column) == [5, 12, 1]


def test_digits_are_text(write, checkpoint):
    assert read_lengths(write("texts.txt", "1234\n" + "abc\n" * 2500), tokenizer=checkpoint) == [4] + [3] * 2500


@pytest.mark.parametrize(
    ("name", "text", "options", "expected"),
    [
        ("a.txt", "12\nhello\n0\n", {}, '2 values are not whole numbers .*: line 2 "hello"; line 3 "0"'),
        ("a.txt", "\n\n", {}, "it is empty"),
        ("a.txt", "12\n", {"column": "tokens"}, "it has no columns, so no 'tokens'"),
        ("a.csv", "id,tokens\n1,12\n", {}, "no column was named; line 1 has id, tokens"),
        ("a.csv", "id,tokens\n1,12\n", {"column": "token"}, "no column 'token', did you mean 'tokens'"),
        ("a.csv", "id,tokens\n1\n", {"column": "tokens"}, 'line 2 ""'),
        ("a.csv", "", {}, "no column was named"),
        ("a.jsonl", '{"tokens": 12}\n{"text": "x"}\n', {"column": "tokens"}, "no column 'tokens'; line 2 has text"),
        ("a.jsonl", "[12, 500]\n", {}, "line 1 is a list"),
        ("a.jsonl", '{"tokens": 12', {}, "JSONDecodeError"),
        ("a.jsonl", '{"tokens": 1.5}\n{"tokens": true}\n{"tokens": null}', {}, "3 values"),
        ("missing/a.txt", None, {}, "FileNotFoundError"),
    ],
)
def test_unreadable_lengths_are_refused(write, tmp_path, name, text, options, expected):
    path = tmp_path / name if text is None else write(name, text)
    with pytest.raises(ConfigError, match=expected):
        read_lengths(path, **options)


def test_non_utf8_text_and_empty_data_are_refused(write, checkpoint, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UnicodeDecodeError"):
        read_lengths(tmp_path / "a.txt")
    with pytest.raises(ConfigError, match="leave the tokenizer out"):
        read_lengths(write("a.jsonl", '{"tokens": 12}'), tokenizer=checkpoint)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="tokenizer"):
        read_lengths(write("b.txt", "hello"), tokenizer=tmp_path / "empty")
