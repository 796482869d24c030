"""The sentences of the VADER paper, each rated by twenty people (Hutto and Gilbert, ICWSM 2014).

An archive inside the package has four tables: number, mean rating from -4 (most negative) to 4, sentence.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .common import save_rows

_SOURCES = {
    "tweets": "tweets",
    "amazonReviewSnippets": "product reviews",
    "movieReviewSnippets": "movie reviews",
    "nytEditorialSnippets": "newspaper",
}


def convert(source: Path, destination: Path) -> None:
    """Write one row for each sentence in the archive."""
    (path,) = source.glob("*.tar.gz")
    with tarfile.open(path, "r:gz") as archive:
        save_rows(_rows(archive), destination)


def _rows(archive: tarfile.TarFile) -> Iterator[dict[str, Any]]:
    for table, name in _SOURCES.items():
        file = archive.extractfile(f"hutto_ICWSM_2014/{table}_GroundTruth.txt")
        assert file is not None, f"{table} is a file of the reviewed archive"
        for line in file.read().decode("utf-8").splitlines():
            _, rating, text = line.split("\t", 2)
            yield {"text": text.strip(), "rating": float(rating), "source": name}
