"""A mixture of experts as a body, with its tensors, for tests of host code.

body = experts_body("float32", is_transposed=True)
(sums_ND,) = body(*arguments(body, index_NK, expert_tensors("float32", is_transposed=True)))
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from optimum_neuron.models.common import run_experts
from tests.programs import body_of, spec

NUM_EXPERTS, NUM_TOKENS, HIDDEN, WIDTH = 4, 24, 40, 16


def experts_function(*, has_bias: bool = False, is_transposed: bool = False, weighs_input: bool = False) -> Any:
    """A function of the experts of each token, their weights, the tokens, and the parameters of the experts."""

    def function(index_NK, weight_NK, x_ND, gate_up, down, *biases):  # type: ignore[no-untyped-def]
        experts = SimpleNamespace(
            num_experts=NUM_EXPERTS,
            has_gate=True,
            has_bias=has_bias,
            has_post_expert_norm=False,
            is_transposed=is_transposed,
            gate_up_proj=gate_up,
            down_proj=down,
            _apply_gate=_interleaved if is_transposed else _halves,
        )
        if biases:
            experts.gate_up_proj_bias, experts.down_proj_bias = biases
        return run_experts(experts, x_ND, index_NK, weight_NK, weighs_input=weighs_input)

    return function


def _halves(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _interleaved(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x[..., ::2].clamp(max=2)) * (x[..., 1::2] + 1)


def expert_tensors(
    dtype: str,
    *,
    num_chosen: int = 2,
    has_bias: bool = False,
    is_transposed: bool = False,
    weighs_input: bool = False,
) -> list[torch.Tensor]:
    """Random arguments after the first."""
    generator = torch.Generator().manual_seed(0)
    up, down = (2 * WIDTH, HIDDEN), (HIDDEN, WIDTH)
    shapes = [(NUM_EXPERTS, *(shape[::-1] if is_transposed else shape)) for shape in (up, down)]
    shapes += [(NUM_EXPERTS, up[0]), (NUM_EXPERTS, HIDDEN)] * has_bias
    tensors = [torch.randn(shape, generator=generator) / 4 for shape in ((NUM_TOKENS, HIDDEN), *shapes)]
    weights = torch.rand(NUM_TOKENS, num_chosen, generator=generator)
    return [weights, *(tensor.to(getattr(torch, dtype)) for tensor in tensors)]


def experts_specs(dtype: str, *, num_chosen: int = 2, **options: bool) -> list[Any]:
    """Shapes of all arguments."""
    tensors = expert_tensors(dtype, num_chosen=num_chosen, **options)
    specs = [spec(*tensor.shape, dtype=str(tensor.dtype).removeprefix("torch.")) for tensor in tensors]
    return [spec(NUM_TOKENS, num_chosen, dtype="int64"), *specs]


def experts_body(dtype: str, *, num_chosen: int = 2, **options: bool) -> fx.GraphModule:
    """The body of `experts_function`."""
    return body_of(experts_function(**options), *experts_specs(dtype, num_chosen=num_chosen, **options))


def arguments(body: fx.GraphModule, index_NK: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in the order of the body's arguments, which no two have the same shape and dtype of."""
    by_shape = {(tensor.shape, tensor.dtype): tensor for tensor in (index_NK, *tensors)}
    values = [node.meta["val"] for node in body.graph.nodes if node.op == "placeholder"]
    return [by_shape[value.shape, value.dtype] for value in values]
