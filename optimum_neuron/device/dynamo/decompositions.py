"""What AOTAutograd decomposes: as Inductor does, except where torch would compute in float64, which no NeuronCore has.

AOTAutograd decomposes operators before a graph is checked, so a user would be refused for a dtype that no line of the
program has. Operators that the chip's rules know stay whole. `renorm` has no rule and a gradient that torch computes in
float64, so it is decomposed before it is differentiated.

    compile_fx(graph_module, example_inputs, decompositions=table())
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...upstream.inductor import select_decomp_table
from ...upstream.torch import DispatchKey

aten = torch.ops.aten

_OVERLOADS = ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
WHOLE = frozenset(
    (
        aten.tril_indices.default,
        aten.triu_indices.default,
        aten.logspace.default,
        *(getattr(operator, overload) for operator in (aten.linspace, aten.logspace) for overload in _OVERLOADS),
    )
)
"""Operators that stay whole."""


class Table(dict[Any, Callable[..., Any]]):
    """Decompositions by operator. torch pickles them with a graph, and some functions cannot be pickled."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Return how to make it again."""
        return table, ()


def table() -> Table:
    """Return Inductor's decompositions without those of `WHOLE`."""
    return Table(
        {operator: decompose for operator, decompose in select_decomp_table().items() if operator not in WHOLE}
    )


@aten.renorm.default.py_impl(DispatchKey.AutogradPrivateUse1)
def renorm(x: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Scale the slices along a dimension whose norm is too large, in graphs of device tensors."""
    torch._check(p > 0, lambda: "renorm: non-positive norm not supported")
    torch._check(maxnorm >= 0, lambda: f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    torch._check(x.dim() > 1, lambda: f"renorm: input needs at least 2 dimensions, got {x.dim()} dimensions")
    others = [number for number in range(x.dim()) if number != dim % x.dim()]
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    norm = torch.linalg.vector_norm(x, p, others, keepdim=True, dtype=dtype)
    factor = torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), torch.ones_like(norm))
    return (x * factor.to(x.dtype)).contiguous()
