"""Products of rows with the bfloat16 weights of their experts, in panels, as an operator that Inductor calls from C++.

A decode step reads the weight of each chosen expert once, whichever number of rows chose it. The panels of one expert
follow those of another, so `weight_EOI[e]` is a weight in panels too.

    torch.ops.neuron_host.panel_experts(rows_PI, panels(weight_EOI), expert_P)

Shape legend: E experts, P rows, N tokens, O outputs, I inputs.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import fx

from ..choose import probe_cpu
from ..kernel import HostKernel
from . import LINEAR, compiler_flags, rows_in_parts


def multiply(rows_PI: torch.Tensor, weight_EOI: torch.Tensor, expert_P: torch.Tensor) -> torch.Tensor:
    """Return each row by the weight of its expert, rounded to bfloat16; zeros for numbers that are no expert.

    It is fastest if numbers of experts ascend.
    """
    parts = [
        EXPERTS(rows.contiguous(), weight_EOI, expert).to(torch.bfloat16)
        for rows, expert in rows_in_parts(weight_EOI.shape[1], rows_PI, expert_P)
    ]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def multiply_picked(x_P1I: torch.Tensor, weight_EOI: torch.Tensor, expert_P: torch.Tensor) -> torch.Tensor:
    """Return `x @ weight[expert].transpose(1, 2)`: [P, 1, O]."""
    return multiply(x_P1I[:, 0], weight_EOI, expert_P)[:, None]


def multiply_all(x: torch.Tensor, weight_EOI: torch.Tensor) -> torch.Tensor:
    """Return `x @ weight.transpose(1, 2)` of rows [N, I] for all experts, or [E, N, I] of each: [E, N, O]."""
    rows = x if x.dim() == 3 else x.expand(len(weight_EOI), *x.shape)
    return torch.stack([LINEAR(rows[e].contiguous(), weight).bfloat16() for e, weight in enumerate(weight_EOI)])


def sum_of_all(x_ENI: torch.Tensor, weight_EOI: torch.Tensor) -> torch.Tensor:
    """Return rows [E, N, I] by the weights of their experts, summed over experts: [N, O]."""
    total = sum(LINEAR(x_ENI[e].contiguous(), weight) for e, weight in enumerate(weight_EOI))
    assert isinstance(total, torch.Tensor)
    return total.bfloat16()


def _shape(rows_PI: torch.Tensor, weight_EOI: torch.Tensor, expert_P: torch.Tensor) -> torch.Tensor:
    torch._check(rows_PI.dtype == weight_EOI.dtype == torch.bfloat16 and expert_P.dtype == torch.int64)
    torch._check(rows_PI.shape[1] == weight_EOI.shape[2] and expert_P.shape == rows_PI.shape[:1])
    return rows_PI.new_empty((len(rows_PI), weight_EOI.shape[1]), dtype=torch.float32)


def is_in(body: fx.GraphModule, features: object) -> bool:
    """Return whether a body calls the kernel; `readers.take_panels` makes it do so."""
    return any(node.target in (EXPERTS, multiply_picked, multiply_all, sum_of_all) for node in body.graph.nodes)


KERNEL = HostKernel(
    schema="neuron_host::panel_experts(Tensor rows, Tensor weight, Tensor expert) -> Tensor",
    title="products with experts in panels on the host",
    source=Path(__file__).with_name("experts.cpp"),
    shape=_shape,
    is_in=is_in,
    flags=compiler_flags(probe_cpu()),
)
EXPERTS = KERNEL.operator
