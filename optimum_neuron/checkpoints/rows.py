"""`read_rows`: a data set of the catalogue as dictionaries. It knows no data set."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..errors import ModelError
from . import catalogue
from .entry import Dataset
from .fetch import fetch
from .folder import DATA


def read_rows(
    name: str, *, cache_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> list[dict[str, Any]]:
    """Return the rows of a data set of the catalogue, fetching it first where needed.

    Args:
        name: A name or alias of the catalogue.
        cache_dir: As for `fetch`.
        progress: As for `fetch`.

    Returns:
        One dictionary for each row. Values that are files (`image`, `audio`) are absolute paths.

    Raises:
        ModelError: As for `fetch`, and if the name is that of a checkpoint.
        CacheError: As for `fetch`.

    Example:
        ```python no-run
        from optimum_neuron.checkpoints import read_rows

        print(read_rows("sentiment")[0]["text"])
        ```
    """
    entry = catalogue.get(name)
    if not isinstance(entry, Dataset):
        raise ModelError(
            f"{entry.name} is a checkpoint, which has no rows.",
            hint="Name a dataset of `optimum-cli neuron fetch --list`.",
            name=entry.name,
        )
    folder = fetch(entry.name, cache_dir=cache_dir, progress=progress)
    rows = [json.loads(line) for line in (folder / DATA).read_text("utf-8").splitlines()]
    return [_with_paths(row, folder) for row in rows]


def _with_paths(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    return row | {key: str(folder / row[key]) for key in ("image", "audio") if key in row}
