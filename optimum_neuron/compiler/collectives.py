"""Operators by which cores exchange tensors, and the host code that stands for them.

A model that is split calls them where its partial results meet. All cores run one program: `rank` tells them apart. On
the host one process has the tensors of every core, so an exchange is a function of all of them.

    torch.ops.neuron.all_reduce(partial, 8)

`send` is between pipeline stages: from each core of a stage to the core of its rank in another one. The operators know
nothing of links and time; the simulator does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .custom_operators import define

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
