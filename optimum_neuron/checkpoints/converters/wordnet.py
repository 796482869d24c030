"""WordNet 3.0: words of one meaning, its definition, and examples.

The format is that of wndb(5WN), "Data File Format": a line for each meaning, with fields between spaces up to the bar,
and behind it the definition and examples in quotation marks.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .common import save_rows

_PARTS = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
"""Ending of a file to part of speech."""
_COUNT, _FIRST_WORD = 3, 4
"""Fields of a line: the number of words in hexadecimal; each word is followed by a number."""
_MARKER = re.compile(r"\((a|p|ip)\)$")
"""Allowed positions of an adjective."""
_EXAMPLE = re.compile(r'"([^"]+)"')


def convert(source: Path, destination: Path) -> None:
    """Write one row for each meaning, from dict/data.*, and the license, from LICENSE."""
    save_rows((row for ending in _PARTS for row in _rows(source / "dict" / f"data.{ending}")), destination)
    shutil.copy(source / "LICENSE", destination / "LICENSE")


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text("utf-8").splitlines():
        if line.startswith(" "):  # the license
            continue
        data, gloss = line.split(" | ", 1)
        fields = data.split(" ")
        words = fields[_FIRST_WORD : _FIRST_WORD + 2 * int(fields[_COUNT], 16) : 2]
        yield {
            "words": [_MARKER.sub("", word).replace("_", " ") for word in words],
            "part": _PARTS[path.suffix.removeprefix(".")],
            "definition": gloss.partition('"')[0].strip(" ;:\r"),
            "examples": _EXAMPLE.findall(gloss),
        }
