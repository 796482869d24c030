"""Operators of this package: `neuron::` stands in programs, `neuron_host::` in host code, `xla::` in recorded graphs.

RANK = define("neuron::rank(int group_size) -> Tensor", fake=_rank)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ..upstream.torch import OpOverload

_LIBRARIES = {name: torch.library.Library(name, "FRAGMENT") for name in ("neuron", "neuron_host", "xla")}


def define(
    schema: str,
    *,
    fake: Callable[..., Any] | None = None,
    run: Callable[..., Any] | None = None,
    dispatch: str = "CPU",
    any_strides: bool = False,
) -> OpOverload:
    """Define an operator, and return it.

    Args:
        schema: Schema with the namespace, as torch writes it.
        dispatch: torch's dispatch key of `run`.
        any_strides: it takes arguments of any strides, so Inductor copies none of them.
    """
    namespace, _, own = schema.partition("::")
    library, name = _LIBRARIES[namespace], own.partition("(")[0]
    library.define(own, tags=(torch.Tag.flexible_layout,) if any_strides else ())
    if fake is not None:
        torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
    if run is not None:
        library.impl(name, run, dispatch)
    operator: OpOverload = getattr(getattr(torch.ops, namespace), name).default
    return operator
