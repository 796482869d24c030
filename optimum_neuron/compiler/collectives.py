"""Operators by which cores exchange tensors, and the host code that stands for them.

A model that is split calls them where its partial results meet. All cores run one program: `rank` tells them apart. On
the host one process has the tensors of every core, so an exchange is a function of all of them.

    torch.ops.neuron.all_reduce(partial, 8)

`send` is between pipeline stages: from each core of a stage to the core of its rank in another one. The operators know
nothing of links and time; the simulator does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from ..base.core import TensorSpec
from .define import define
from .ir import forget_source_at_end, lazy_module
from .serialize import make_subprogram

if TYPE_CHECKING:
    from torch import fx

    from .ir import Program, Subprogram


def _rank(group_size: int) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64)


def _same(x: torch.Tensor, group_size: int = 1) -> torch.Tensor:
    return x.new_empty(x.shape)


def _all_gather(x: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] *= group_size
    return x.new_empty(shape)


def _reduce_scatter(x: torch.Tensor, dim: int, group_size: int) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] //= group_size
    return x.new_empty(shape)


RANK = define("neuron::rank(int group_size) -> Tensor", fake=_rank)
"""Number of the core within its group, an int64 scalar."""
ALL_REDUCE = define("neuron::all_reduce(Tensor x, int group_size) -> Tensor", fake=_same)
"""Sum over the cores; every core has it."""
ALL_GATHER = define("neuron::all_gather(Tensor x, int dim, int group_size) -> Tensor", fake=_all_gather)
"""Parts of all cores joined along a dimension; every core has the whole."""
REDUCE_SCATTER = define("neuron::reduce_scatter(Tensor x, int dim, int group_size) -> Tensor", fake=_reduce_scatter)
"""Sum over the cores, divided among them along a dimension."""
SEND = define("neuron::send(Tensor x) -> Tensor", fake=_same)
"""The tensor in the memory of another stage; the passes that divide a program call it, models do not."""
EXCHANGES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER)
"""Operators at which every core of a group waits for the others."""


def group_size_of(program: Program) -> int:
    """Return how many cores share every layer of a program: 1 where they exchange nothing."""
    exchanges = [node for one in program.subprograms.values() if (node := exchange_of(one)) is not None]
    return exchanges[0].args[-1] if exchanges else 1


def divided_prompts(program: Program) -> tuple[str, ...]:
    """Return the graphs in which each core has the residual stream of a part of the tokens."""
    scattered = {
        name
        for name, one in program.subprograms.items()
        if (node := exchange_of(one)) is not None and node.target is REDUCE_SCATTER
    }
    graphs = program.graphs.items()
    return tuple(name for name, graph in graphs if any(call.subprogram in scattered for call in graph.calls))


def exchange_of(subprogram: Subprogram) -> fx.Node | None:
    """Return the exchange that a body consists of; None if it computes on one core."""
    calls = [node for node in subprogram.body.graph.nodes if node.op == "call_function"]
    return calls[0] if len(calls) == 1 and calls[0].target in EXCHANGES else None


def is_send(subprogram: Subprogram) -> bool:
    """Return whether a body sends a tensor to another stage, and does nothing else."""
    return any(node.target is SEND for node in subprogram.body.graph.nodes)


def send_of(spec: TensorSpec) -> Subprogram:
    """Return the body that sends a tensor of such a shape."""
    return _body(lambda x: (SEND(x),), [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")])


def host_exchange(subprogram: Subprogram, num_parts: int) -> Subprogram:
    """Return the body that computes an exchange from the tensors of all cores, in the order of their ranks.

    Every core gets its result; the results of `reduce_scatter` are one for each core. Sums of 16-bit numbers are
    rounded once, at the end.

    Args:
        num_parts: Number of tensors; a sum may leave out those of zeros.
    """
    node = exchange_of(subprogram)
    assert node is not None, f"{subprogram.name} is no exchange"
    (spec,) = subprogram.inputs
    parts = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")] * num_parts
    if node.target is ALL_GATHER:
        return _body(lambda *x: (torch.ops.aten.cat.default(list(x), node.args[1]),), parts)
    if node.target is ALL_REDUCE:
        return _body(lambda *x: (_sum(x),), parts)
    return _body(lambda *x: _scattered(_sum(x), node.args[1], len(x)), parts)


def _sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    dtype = parts[0].dtype
    total = parts[0].float()
    for part in parts[1:]:
        total = total + part.float()
    return total.to(dtype)


def _scattered(total: torch.Tensor, dim: int, num_parts: int) -> tuple[torch.Tensor, ...]:
    return tuple(part.contiguous() for part in total.chunk(num_parts, dim))


def _body(function: Callable[..., tuple[torch.Tensor, ...]], parts: Sequence[torch.Tensor]) -> Subprogram:
    """Trace a function of so many tensors into a body."""
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(lambda *x: function(*x), tracing_mode="fake")(*(torch.empty_like(p, device="cpu") for p in parts))
    forget_source_at_end(traced)
    return make_subprogram(lazy_module(traced.graph))
