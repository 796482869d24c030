"""Sentences of an audiobook from the tests of PocketSphinx: recordings with transcripts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from .common import save_rows

_LINE = re.compile(r"<s> (?P<text>.*) </s> \((?P<name>[\w-]+)\)")
"""A line of the transcription: words between the marks of a sentence, then the name of its recording."""


def convert(source: Path, destination: Path) -> None:
    """Copy the recordings (.wav) unchanged, and write one row for each line of `transcription`."""
    rows = []
    destination.mkdir()
    for line in (source / "transcription").read_text("utf-8").splitlines():
        match = _LINE.fullmatch(line)
        assert match is not None, f"{line} is no line of a transcription"
        audio = f"{match['name'].rpartition('-')[2]}.wav"
        shutil.copyfile(source / f"{match['name']}.wav", destination / audio)
        rows.append({"audio": audio, "text": match["text"]})
    save_rows(rows, destination)
