"""Seeds of all random numbers of a script."""

from __future__ import annotations

import random

import numpy
import torch


def set_random_seed(seed: int) -> None:
    """Seed Python's, NumPy's, and torch's random numbers."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
