"""`torch.neuron.analyze_model`: which operators of a model NeuronCore-v1 has, without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from . import log
from .segments import Limits, Plan
from .support import checked_whitelist, unsupported_because
from .tracer import checked_inputs, traced_program


def analyze_model(
    model: Callable[..., Any],
    example_inputs: object,
    op_whitelist: Collection[str] | None = None,
    **jit_trace_kwargs: object,
) -> dict[str, Any]:
    """Log which operators of a model run on NeuronCore-v1 and which on the CPU, and return their counts.

    Args:
        model: as for `trace`.
        example_inputs: as for `trace`.
        op_whitelist: as for `trace`.
        jit_trace_kwargs: other arguments of `torch.jit.trace`.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import inf1

        report = inf1.analyze_model(torch.nn.Linear(4, 2), torch.rand(3, 4))
        assert report["supported_operators"] == {"aten::linear": 1}
        ```
    """
    whitelist = checked_whitelist(op_whitelist)
    program, example = traced_program(model, checked_inputs(example_inputs), jit_trace_kwargs)
    limits = Limits(supports=lambda one: not unsupported_because(one, example, whitelist), chosen=lambda one: True)
    return log.analysis(Plan(program, limits))
