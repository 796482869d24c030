"""Random numbers of the device by one integer: `xm.set_rng_state(seed)` and `xm.get_rng_state()`."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import torch

from . import torch_module

_SEED_BYTES = 8


def set_rng_state(seed: int, device: str | torch.device | None = None) -> None:
    """Seed a device.

    Args:
        seed: the seed, or what `get_rng_state` returned.
        device: such as "xla:0"; None: the current device.
    """
    torch_module.set_rng_state(_state(seed), device)


def manual_seed(seed: int, device: str | torch.device | None = None) -> None:
    """Seed a device.

    Args:
        seed: the seed.
        device: such as "xla:0"; None: the current device.
    """
    set_rng_state(seed, device)


def get_rng_state(device: str | torch.device | None = None) -> int:
    """Return the integer from which a device goes on; `set_rng_state` with it repeats what comes next.

    A seed is one integer, and a position in its sequence another. So a device that has drawn numbers since it was
    seeded goes on with a seed that is derived from both.

    Args:
        device: such as "xla:0"; None: the current device.
    """
    state = bytes(torch_module.get_rng_state(device).tolist())
    if any(state[_SEED_BYTES:]):
        digest = hashlib.blake2b(state, digest_size=_SEED_BYTES).digest()
        set_rng_state(int.from_bytes(digest, "little") >> 1, device)
        return get_rng_state(device)
    return int.from_bytes(state[:_SEED_BYTES], "little")


@contextlib.contextmanager
def fork_rng(device: str | torch.device | None = None, enabled: bool = True) -> Iterator[None]:
    """Run a block, and continue with the random numbers from before it.

    Args:
        device: such as "xla:0"; None: the current device.
        enabled: False runs the block alone.
    """
    if not enabled:
        yield
        return
    state = torch_module.get_rng_state(device)
    try:
        yield
    finally:
        torch_module.set_rng_state(state, device)


def _state(seed: int) -> torch.Tensor:
    """State of a generator that was just seeded."""
    seed_bytes = (int(seed) & (2 ** (8 * _SEED_BYTES) - 1)).to_bytes(_SEED_BYTES, "little")
    return torch.tensor(list(seed_bytes + bytes(_SEED_BYTES)), dtype=torch.uint8)
