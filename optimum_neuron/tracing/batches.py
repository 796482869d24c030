"""Dynamic batching: a traced model takes any number of rows, split and padded to the rows it was compiled for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..compiler import Graph, Program, tensor_spec
from ..engine import run_rows
from ..errors import ConfigError, ShapeError

if TYPE_CHECKING:
    import torch

Run = Callable[["Sequence[torch.Tensor]"], "list[torch.Tensor]"]


def run_in_batches(program: Program, graph: Graph, inputs: Sequence[torch.Tensor], run: Run) -> list[torch.Tensor]:
    """Run a graph on any number of rows."""
    size = compiled_rows(program, graph)
    if _rows(graph, inputs) == size:
        return run(inputs)
    results = run_rows(lambda part: dict(enumerate(run(part))), inputs, compiled_rows=size)
    return list(results.values())


def compiled_rows(program: Program, graph: Graph) -> int:
    """Return dimension 0 of all inputs and outputs."""
    specs = {**graph.inputs, **{name: program.value_spec(graph, value) for name, value in graph.outputs.items()}}
    sizes = {spec.shape[0] if spec.shape else 0 for spec in specs.values()}
    if len(sizes) == 1 and 0 not in sizes and not program.states:
        return sizes.pop()
    problem = "it keeps a state" if program.states else ", ".join(f"{name} has {spec}" for name, spec in specs.items())
    message = f"Dynamic batching needs the batch in dimension 0 of every input and output, and no state: {problem}."
    hint = "Return tensors that begin with the batch, or trace each batch size."
    raise ConfigError(message, hint=hint, states=list(program.states), tensors={n: str(s) for n, s in specs.items()})


def _rows(graph: Graph, inputs: Sequence[torch.Tensor]) -> int:
    specs = [tensor_spec(tensor) for tensor in inputs]
    expected = list(graph.inputs.items())
    if len(specs) != len(expected):
        problems = [f"{len(specs)} inputs, compiled for {len(expected)}"]
    else:
        problems = [
            f"{name} is {spec}, compiled for {compiled.dtype}[{', '.join(['any', *map(str, compiled.shape[1:])])}]"
            for (name, compiled), spec in zip(expected, specs, strict=True)
            if spec.dtype != compiled.dtype
            or len(spec.shape) != len(compiled.shape)
            or spec.shape[1:] != compiled.shape[1:]
        ]
    rows = {spec.shape[0] for spec in specs if spec.shape}
    if not problems and (len(rows) != 1 or 0 in rows):
        problems = [f"{name} has {spec.shape[0]} rows" for (name, _), spec in zip(expected, specs, strict=True)]
    if problems:
        message = f"With dynamic batching, only dimension 0 of the inputs may change: {'; '.join(problems)}."
        raise ShapeError(message, hint="Pad or cast the inputs.", graph=graph.name, problems=problems)
    return rows.pop()
