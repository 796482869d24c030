"""Random numbers: seeds and states of the devices' generators. Seeding alone builds nothing."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import library
from .devices import Device, current_device, device_count, index_of

_SEED_MASK = 2**64 - 1
_waiting_seed: int | None = None


def manual_seed(seed: int) -> None:
    """Seed the current device."""
    _generator(current_device()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every device; `torch.manual_seed` calls this."""
    global _waiting_seed
    if library.is_loaded():
        library.load().neuron_seed_all(int(seed) & _SEED_MASK)
    else:
        _waiting_seed = int(seed)


def seed_loaded_device() -> None:
    """Apply a seed that was set before the device was loaded."""
    if _waiting_seed is not None:
        manual_seed_all(_waiting_seed)


def seed() -> int:
    """Seed the current device at random, and return the seed."""
    return _generator(current_device()).seed()


def seed_all() -> int:
    """Seed every device with one random seed, and return it."""
    chosen = seed()
    manual_seed_all(chosen)
    return chosen


def initial_seed() -> int:
    """The seed of the current device."""
    return _generator(current_device()).initial_seed()


def get_rng_state(device: Device = "neuron") -> torch.Tensor:
    """State of a device's generator: 16 bytes, seed and offset."""
    return _generator(index_of(device)).get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "neuron") -> None:
    """Set the state of a device's generator, as returned by `get_rng_state`."""
    _generator(index_of(device)).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of the first devices, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _generator(index: int) -> torch.Generator:
    from .. import placement

    placement.require_device(index)
    library.load()
    return torch.ops.neuron_sim.default_generator(index)
