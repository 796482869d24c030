"""Run a body operator by operator through ATen: no compiler, ready at once, the reference for the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule

HostFunction = Callable[["list[torch.Tensor]"], "list[torch.Tensor]"]
"""A subprogram that can be called: tensors in, tensors out, state changed in place."""


def aten_function(body: GraphModule) -> HostFunction:
    """Return the body as a host function."""
    forward = body.forward

    def call(arguments: list[torch.Tensor]) -> list[torch.Tensor]:
        return list(forward(*arguments))

    return call
