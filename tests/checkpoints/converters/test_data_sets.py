"""Converters of data sets, on a few lines in the form of the real files."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from optimum_neuron.checkpoints.converters import librivox, mnist, photographs, vader, wordnet
from optimum_neuron.errors import ModelError


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "data.jsonl").read_text("utf-8").splitlines()]


def test_sentences_have_their_mean_rating(tmp_path):
    tables = ("tweets", "amazonReviewSnippets", "movieReviewSnippets", "nytEditorialSnippets")
    with tarfile.open(tmp_path / "hutto_ICWSM_2014.tar.gz", "w:gz") as archive:
        for number, table in enumerate(tables):
            content = f"1\t{-number}.5\tA caf\u00e9 in {table}. \r\n2\t1\tTabs\tstay\r\n".encode()
            info = tarfile.TarInfo(f"hutto_ICWSM_2014/{table}_GroundTruth.txt")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    vader.convert(tmp_path, tmp_path / "out")
    result = rows(tmp_path / "out")
    assert len(result) == 8
    assert result[2] == {"text": "A caf\u00e9 in amazonReviewSnippets.", "rating": -1.5, "source": "product reviews"}
    assert result[3]["text"] == "Tabs\tstay"


def test_meaning_has_its_words_definition_and_examples(tmp_path):
    lines = {
        "noun": "00002137 03 n 02 abstraction 0 abstract_entity 0 001 @ 00001740 n 0000 | a general concept  ",
        "verb": '00001740 29 v 01 breathe 0 001 * 00005041 v 0000 01 + 02 00 | draw air; "I can breathe"; "so" ',
        "adj": "00004980 00 a 01 afloat(p) 0 000 | borne on the water  ",
        "adv": "00001740 02 r 01 a_cappella 0 000 | without accompaniment  ",
    }
    (tmp_path / "dict").mkdir()
    (tmp_path / "LICENSE").write_text("terms")
    for part, line in lines.items():
        (tmp_path / "dict" / f"data.{part}").write_text(f"  1 This software and database\n{line}\n")
    wordnet.convert(tmp_path, tmp_path / "out")
    assert rows(tmp_path / "out") == [
        row(["abstraction", "abstract entity"], "noun", "a general concept"),
        row(["breathe"], "verb", "draw air", "I can breathe", "so"),
        row(["afloat"], "adjective", "borne on the water"),
        row(["a cappella"], "adverb", "without accompaniment"),
    ]
    assert (tmp_path / "out" / "LICENSE").read_text() == "terms"


def row(words: list[str], part: str, definition: str, *examples: str) -> dict[str, Any]:
    return {"words": words, "part": part, "definition": definition, "examples": list(examples)}


def test_images_are_rows_with_captions(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "coffee.png").write_bytes(b"picture")
    photographs.convert(tmp_path / "in", tmp_path / "out")
    (only,) = rows(tmp_path / "out")
    assert only["image"] == "coffee.png" and "coffee" in only["caption"]
    assert (tmp_path / "out" / "coffee.png").read_bytes() == b"picture"


def test_recording_has_its_transcript(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "book_64kb-0870.wav").write_bytes(b"RIFF")
    (source / "transcription").write_text("<s> and mister john </s> (book_64kb-0870)\n")
    librivox.convert(source, tmp_path / "out")
    assert rows(tmp_path / "out") == [{"audio": "0870.wav", "text": "and mister john"}]
    assert (tmp_path / "out" / "0870.wav").read_bytes() == b"RIFF"


def test_digits_are_rows_of_pixels(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for prefix, digit in (("train", 7), ("t10k", 4)):
        header = b"".join(number.to_bytes(4, "big") for number in (0x803, 1, 2, 3))
        (source / f"{prefix}-images-idx3-ubyte").write_bytes(header + bytes(range(digit, digit + 6)))
        (source / f"{prefix}-labels-idx1-ubyte").write_bytes(header[:3] + b"\x01" + header[4:8] + bytes([digit]))
    mnist.convert(source, tmp_path / "out")
    first, second = rows(tmp_path / "out")
    assert (first["split"], first["digit"]) == ("train", 7) and (second["split"], second["digit"]) == ("test", 4)
    assert base64.b64decode(second["pixels"]) == bytes(range(4, 10))
    (source / "train-labels-idx1-ubyte").write_bytes(header)
    with pytest.raises(ModelError) as caught:
        mnist.convert(source, tmp_path / "again")
    assert caught.value.details["file"] == "train-labels-idx1-ubyte"
