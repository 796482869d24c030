"""`optimum.neuron.utils.import_utils`: which packages are there."""

from __future__ import annotations

import importlib.util


def is_neuronx_available() -> bool:
    """Return whether `torch_neuronx` can be imported; this distribution has it."""
    return importlib.util.find_spec("torch_neuronx") is not None
