"""The English conversations of the ChatterBot corpus: pairs of statement and reply."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from .common import save_rows


def convert(source: Path, destination: Path) -> None:
    """Write one row for each sentence that is answered; the topic is the name of the YAML file."""
    save_rows(_rows(source), destination)


def _rows(source: Path) -> Iterator[dict[str, Any]]:
    import yaml

    for path in sorted(source.glob("*.yml")):
        for conversation in yaml.safe_load(path.read_text("utf-8"))["conversations"]:
            if isinstance(conversation, str):  # a slip in the file: there is no second speaker
                continue
            for question, answer in pairwise(conversation):
                yield {"question": question.strip(), "answer": answer.strip(), "topic": path.stem}
