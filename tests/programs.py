"""Small functions and modules as captured bodies and running programs, for the tests of the compiler and its users.

body = body_of(torch.matmul, spec(2, 8), spec(8, 4))
compiled = compile_module(module, {"x": spec(2, 8)})
results = run_program(compiled.program, module, [torch.randn(2, 8)])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler import Compiled, Program, Subprogram, capture, compile_graphs
from optimum_neuron.compiler.lower import aten_function
from optimum_neuron.compiler.passes import outline
from optimum_neuron.hardware import TARGETS
from optimum_neuron.runtime import Executor


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    """A tensor's shape and dtype."""
    return TensorSpec(shape=shape, dtype=dtype)


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def subprogram_of(function: Callable[..., Any], *inputs: TensorSpec, num_outputs: int = 1) -> Subprogram:
    """The one body that a function is captured as; its arguments are in the order of their first use."""
    names = tuple(f"out{i}" for i in range(num_outputs))
    captured = capture(Calls(function), name="graph", inputs={f"in{i}": s for i, s in enumerate(inputs)}, outputs=names)
    (subprogram,) = outline(captured).subprograms.values()
    return subprogram


def body_of(function: Callable[..., Any], *inputs: TensorSpec, num_outputs: int = 1) -> fx.GraphModule:
    """The ATen calls that a function is captured as."""
    return subprogram_of(function, *inputs, num_outputs=num_outputs).body


def operators(body: fx.GraphModule) -> list[str]:
    """Names of the calls of a body, in order."""
    return [str(node.target) for node in body.graph.nodes if node.op == "call_function"]


def compile_module(
    module: nn.Module,
    inputs: Mapping[str, TensorSpec],
    *,
    states: Mapping[str, TensorSpec] | None = None,
    name: str = "graph",
    **options: Any,
) -> Compiled:
    """Compile a module with one entry point."""
    recapture = functools.partial(capture_entry, module, name=name, inputs=inputs, states=states)
    return compile_graphs([recapture], target=TARGETS["inf2"], **options)


def capture_entry(module: nn.Module, shorten: bool, **options: Any) -> Any:
    """`capture` as `compile_graphs` calls it."""
    return capture(module, shorten=shorten, **options)


def run_program(
    program: Program,
    module: nn.Module,
    inputs: Sequence[torch.Tensor],
    state: Sequence[torch.Tensor] = (),
    graph: str = "graph",
) -> dict[str, torch.Tensor]:
    """Run a program through ATen with the weights of a module."""
    functions = {name: aten_function(subprogram.body) for name, subprogram in program.subprograms.items()}
    return Executor(program, functions, weights_of(program, module)).run(graph, inputs, state)


def weights_of(program: Program, module: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module that a program asks for."""
    tensors = module.state_dict()
    return {name: tensors[name] for name in program.weights}
