"""Modules whose activations are computed again in the backward pass instead of kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


def apply_activation_checkpointing(model: nn.Module, check_fn: Callable[[nn.Module], bool]) -> None:
    """Compute the activations of some modules again.

    Args:
        model: the model, which is changed.
        check_fn: whether a module is one of them.
    """
    for module in model.modules():
        if check_fn(module):
            _wrap(module)


def _wrap(module: nn.Module) -> None:
    forward = module.forward

    def again(*args: object, **kwargs: object) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    module.forward = again
