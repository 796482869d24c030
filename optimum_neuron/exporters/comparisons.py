"""Records of comparisons that passed, by everything that decides one besides the model; light, for `neuron cache`.

record = COMPARISONS.find({"neff": ..., "atol": None})
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from pathlib import Path

from ..compiler import hash_of_sources
from ..records import Records

_LIBRARIES = ("torch", "transformers", "diffusers")
"""Their models are what ours are compared with."""


@functools.cache
def _versions() -> dict[str, str]:
    package = hash_of_sources(Path(__file__).parents[1], ["."], (".py", ".h", ".cpp"))
    installed = [name for name in _LIBRARIES if importlib.util.find_spec(name)]
    return {"package": package, **{name: importlib.metadata.version(name) for name in installed}}


COMPARISONS = Records(name="validated", versions=lambda: _versions())
