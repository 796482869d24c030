"""Where the programs of a pipeline are: each on a core, and those that share the rows of a step on every core."""

from __future__ import annotations

import os

from ...kinds.diffusion import component_of, is_divided
from ...runtime import Copies, load_copies, num_usable
from .pipeline import PreparedPipeline


def place(prepared: PreparedPipeline) -> dict[str, Copies]:
    """Return the loaded programs, in copies where `data_parallel_mode` asks for them."""
    copies = {}
    for name, part in prepared.parts.items():
        assert part.loaded is not None and part.bound is not None, "a pipeline has weights"
        if is_divided(component_of(name, prepared.models), prepared.config):
            part.loaded.close()
            cores = range(num_usable(part.bound.instance, os.environ))
            copies[name] = Copies(load_copies(cores, part.bound.load, model=part.bound.model_name))
        else:
            copies[name] = Copies([part.loaded])
    return copies
