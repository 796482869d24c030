from __future__ import annotations

import json

import pytest

from optimum_neuron.buckets import read_lengths
from optimum_neuron.errors import ConfigError, ModelError
from tests.raising import raises

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
        ("a.txt", "12\nhello\n0\n", {}, {"num_problems": 2}),
        ("a.txt", "\n\n", {}, {"num_problems": 0}),
        ("a.txt", "12\n", {"column": "tokens"}, {"column": "tokens"}),
        ("a.csv", "id,tokens\n1,12\n", {}, {"column": None, "line": 1, "columns": ["id", "tokens"]}),
        ("a.csv", "id,tokens\n1,12\n", {"column": "token"}, {"column": "token", "columns": ["id", "tokens"]}),
        ("a.csv", "id,tokens\n1\n", {"column": "tokens"}, {"num_problems": 1}),
        ("a.csv", "", {}, {"column": None, "line": 1, "columns": []}),
        (
            "a.jsonl",
            '{"tokens": 12}\n{"text": "x"}\n',
            {"column": "tokens"},
            {"column": "tokens", "line": 2, "columns": ["text"]},
        ),
        ("a.jsonl", "[12, 500]\n", {}, {"line": 1}),
        ("a.jsonl", '{"tokens": 1.5}\n{"tokens": true}\n{"tokens": null}', {}, {"num_problems": 3}),
    ],
)
def test_unreadable_lengths_are_refused(write, name, text, options, expected):
    path = write(name, text)
    with raises(ConfigError, file=str(path), **expected):
        read_lengths(path, **options)


def test_unreadable_files_are_refused(write, tmp_path):
    cut = write("a.jsonl", '{"tokens": 12')
    for path, kind in ((cut, "JSONDecodeError"), (tmp_path / "b.txt", "FileNotFoundError")):
        with raises(ConfigError, file=str(path)) as error:
            read_lengths(path)
        assert error.value.details["problem"].startswith(kind)


def test_non_utf8_text_and_empty_data_are_refused(write, checkpoint, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with raises(ConfigError, file=str(tmp_path / "a.txt")) as error:
        read_lengths(tmp_path / "a.txt")
    assert error.value.details["problem"].startswith("UnicodeDecodeError")
    with raises(ConfigError, num_problems=1):
        read_lengths(write("a.jsonl", '{"tokens": 12}'), tokenizer=checkpoint)
    (tmp_path / "empty").mkdir()
    with raises(ModelError, tokenizer=str(tmp_path / "empty")):
        read_lengths(write("b.txt", "hello"), tokenizer=tmp_path / "empty")
