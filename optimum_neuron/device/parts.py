"""The parts of the device that are written in Python; they are registered once the shared object is loaded."""

from __future__ import annotations

import ctypes


def complete(functions: ctypes.CDLL) -> None:
    """Register them; `library.load()` calls it."""
    # Some of them import torch, which imports this module.
    from . import amp, census, default_compile, first_use, flex_attention, safetensors_hook
    from .module import random

    first_use.stand_back()
    random.seed_loaded_device()
    amp.install()
    flex_attention.install()
    default_compile.install()
    safetensors_hook.install()
    census.install(functions)
