"""Random numbers that ranks of tensor parallelism draw alike, and others which differ, for dropout of divided tensors.

model_parallel_xla_manual_seed(1234)
with get_xla_rng_tracker().fork():
    hidden = dropout(hidden)
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch

from .. import xla
from ..errors import ConfigError
from .parallel_state import TENSOR

MODEL_PARALLEL = "model-parallel-rng"
_OFFSET = 2718
"""Distance between the seed that ranks share and the seed of the first rank."""


class RandomStates:
    """Sequences of random numbers by name, on the CPU and on the device "xla"."""

    def __init__(self) -> None:
        self.states: dict[str, list[torch.Tensor]] = {}

    def reset(self) -> None:
        """Forget all of them."""
        self.states.clear()

    def add(self, name: str, seed: int) -> None:
        """Begin a sequence.

        Args:
            name: its name.
            seed: its seed.
        """
        if name in self.states:
            message = f"There are random numbers of the name {name!r} already."
            raise ConfigError(message, hint="Choose another name, or call reset().", name=name)
        before = _states()
        _seed(seed)
        self.states[name] = _states()
        _set_states(before)

    @contextlib.contextmanager
    def fork(self, name: str = MODEL_PARALLEL) -> Iterator[None]:
        """Draw from a sequence within a block.

        Args:
            name: its name.
        """
        if name not in self.states:
            message = f"There are no random numbers of the name {name!r}."
            raise ConfigError(message, hint="Call model_parallel_xla_manual_seed(seed) first.", name=name)
        before = _states()
        _set_states(self.states[name])
        try:
            yield
        finally:
            self.states[name] = _states()
            _set_states(before)


_TRACKER = RandomStates()


def get_xla_rng_tracker() -> RandomStates:
    """Return the sequences of this process."""
    return _TRACKER


def model_parallel_xla_manual_seed(seed: int) -> None:
    """Seed what ranks draw alike, and begin a sequence that differs between ranks of tensor parallelism.

    Args:
        seed: the same on all ranks.
    """
    _TRACKER.reset()
    _seed(seed)
    _TRACKER.add(MODEL_PARALLEL, seed + _OFFSET + TENSOR.rank())


def set_random_seed(seed: int) -> None:
    """Seed Python, NumPy, and torch, and ranks as `model_parallel_xla_manual_seed` does where there are groups.

    Args:
        seed: the same on all ranks.
    """
    random.seed(seed)
    np.random.seed(seed)
    _seed(seed)
    if TENSOR.is_made():
        model_parallel_xla_manual_seed(seed)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    if xla.is_enabled():
        xla.random_state.manual_seed(seed)


def _states() -> list[torch.Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.xla.get_rng_state()] if xla.is_enabled() else states


def _set_states(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.xla.set_rng_state(states[1])
