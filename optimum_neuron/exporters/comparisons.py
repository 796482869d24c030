"""Records of comparisons that passed, by everything that decides one besides the model; light, for `neuron cache`.

record = COMPARISONS.find({"neff": ..., "atol": None})
"""

from __future__ import annotations

import functools
from pathlib import Path

from ..files.records import Records, hash_of_sources, installed_versions

_LIBRARIES = ("torch", "transformers", "diffusers", "compressed_tensors", "gguf")
"""Their models and weights are what ours are compared with."""


@functools.cache
def _versions() -> dict[str, str]:
    package = hash_of_sources(Path(__file__).parents[1], ["."], (".py", ".h", ".cpp"))
    return {"package": package, **installed_versions(*_LIBRARIES)}


COMPARISONS = Records(name="validated", versions=lambda: _versions())
