"""Mixed precision and activation checkpoints: `torch_xla.amp` and `torch_xla.utils.checkpoint`."""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as _checkpoint

from ..errors import ConfigError

_ASKS_GRADIENTS_OF_INPUTS = contextvars.ContextVar("_ASKS_GRADIENTS_OF_INPUTS", default=False)


class autocast(torch.autocast):  # noqa: N801  (torch_xla's name)
    """`torch.autocast` of a device "xla", in bfloat16.

    Args:
        device: such as "xla:0".
        enabled: False: nothing is cast.
        dtype: `torch.bfloat16`, or None; other dtypes disable it with a warning.
        cache_enabled: as of `torch.autocast`.

    Raises:
        ConfigError: the device is not "xla".
    """

    def __init__(
        self,
        device: str | torch.device,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        if torch.device(device).type != "xla":
            hint = f'Use `torch.autocast("{torch.device(device).type}")`.'
            raise ConfigError(f"torch_xla.amp.autocast is for devices xla, not for {device}.", hint=hint)
        if dtype not in (None, torch.bfloat16):
            warnings.warn(f"Autocast on xla is in torch.bfloat16 only; {dtype} disables it.", UserWarning, stacklevel=2)
            enabled, dtype = False, None
        super().__init__("xla", dtype or torch.bfloat16, enabled, cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` of "xla"; bfloat16 needs no scaling.

    Args:
        **options: as of `torch.amp.GradScaler`.
    """

    def __init__(self, **options: object) -> None:
        super().__init__("xla", **options)


def checkpoint(function: Callable[..., Any], *args: object, use_reentrant: bool = True, **kwargs: object) -> Any:
    """Call a function without keeping its activations, and again in the backward pass.

    Args:
        function: the function.
        *args: its arguments.
        use_reentrant: as of `torch.utils.checkpoint.checkpoint`; False inside `without_reentrant_checkpoints`.
        **kwargs: `preserve_rng_state`, and without `use_reentrant` arguments of the function.
    """
    use_reentrant = use_reentrant and not _ASKS_GRADIENTS_OF_INPUTS.get()
    return _checkpoint(function, *args, use_reentrant=use_reentrant, **kwargs)


@contextlib.contextmanager
def without_reentrant_checkpoints() -> Iterator[None]:
    """Let the gradients of inputs alone be asked for, which torch refuses for reentrant checkpoints."""
    token = _ASKS_GRADIENTS_OF_INPUTS.set(True)
    try:
        yield
    finally:
        _ASKS_GRADIENTS_OF_INPUTS.reset(token)


def optimization_barrier_(tensors: Sequence[torch.Tensor]) -> None:
    """Keep computations on either side of tensors apart; here all values are computed in the order of the code.

    Args:
        tensors: tensors of "xla".
    """
    if wrong := [str(one.device) for one in tensors if one.device.type != "xla"]:
        hint = "Move them to a device xla first."
        raise ConfigError(f"optimization_barrier_ takes tensors of xla, not of {', '.join(wrong)}.", hint=hint)
