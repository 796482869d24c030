"""Dynamic batching: a traced model takes any number of rows, split and padded to the rows it was compiled for.

>>> from optimum_neuron.tracing.batches import num_batches
>>> num_batches(rows=7, compiled_rows=3)
3
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..compiler.ir import Graph, Program
from ..compiler.serial import tensor_spec
from ..core import TensorSpec
from ..engine.rows import run_rows
from ..errors import ConfigError, ShapeError, refusal

if TYPE_CHECKING:
    import torch

Run = Callable[["Sequence[torch.Tensor]"], "list[torch.Tensor]"]


def dynamic_batch(neuron_script: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Let a traced model take any size of dimension 0, and return it; the setting is saved with it.

    Calls are split into the compiled number of rows, and the last rows are padded. Time goes with the number of splits.

    Args:
        neuron_script: what `trace` returned; it is changed in place.

    Raises:
        ConfigError: inputs or outputs have no dimension 0 that all of them share, or the model has a state.

    Example:
        ```python
        import torch
        from optimum_neuron.tracing import dynamic_batch, trace

        model = trace(torch.nn.Linear(4, 2), torch.rand(3, 4), compiler_args="-O1")
        assert dynamic_batch(model)(torch.rand(7, 4)).shape == (7, 2)
        ```
    """
    from .script import neuron_models, session_of

    for model in neuron_models(neuron_script):
        program = session_of(model).program
        for graph in program.graphs.values():
            _compiled_rows(program, graph)
        model.dynamic_batch = True
    return neuron_script


def num_batches(*, rows: int, compiled_rows: int) -> int:
    """How many calls a batch takes."""
    return math.ceil(rows / compiled_rows)


def run_in_batches(program: Program, graph: Graph, inputs: Sequence[torch.Tensor], run: Run) -> list[torch.Tensor]:
    """Run a graph on any number of rows.

    Raises:
        ShapeError: the inputs have different numbers of rows, none at all, or differ in another dimension.
    """
    size = _compiled_rows(program, graph)
    if _rows(graph, inputs) == size:
        return run(inputs)
    results = run_rows(lambda part: dict(enumerate(run(part))), inputs, compiled_rows=size)
    return list(results.values())


def _compiled_rows(program: Program, graph: Graph) -> int:
    """Dimension 0 of all inputs and outputs."""
    specs = {name: spec for name, spec in graph.inputs.items()}
    specs |= {name: program.value_spec(graph, value) for name, value in graph.outputs.items()}
    found = {name: spec.shape[0] if spec.shape else 0 for name, spec in specs.items()}
    if len(set(found.values())) == 1 and 0 not in found.values() and not program.states:
        return next(iter(found.values()))
    problem = "it keeps a state" if program.states else ", ".join(f"{name} has {spec}" for name, spec in specs.items())
    raise ConfigError(
        refusal(
            asked="dynamic batching",
            found=problem,
            why="rows can be split and joined only where every input and output has them in dimension 0",
            do="trace a model whose inputs and outputs all begin with the batch, or trace each batch size",
        )
    )


def _rows(graph: Graph, inputs: Sequence[torch.Tensor]) -> int:
    found = [tensor_spec(tensor) for tensor in inputs]
    wanted = list(graph.inputs.items())
    if len(found) != len(wanted):
        problems = [f"{len(found)} inputs, compiled for {len(wanted)}"]
    else:
        problems = [
            f"{name} is {spec}, compiled for {_any_rows(compiled)}"
            for (name, compiled), spec in zip(wanted, found, strict=True)
            if spec.dtype != compiled.dtype
            or len(spec.shape) != len(compiled.shape)
            or spec.shape[1:] != compiled.shape[1:]
        ]
    rows = {spec.shape[0] for spec in found if spec.shape}
    if not problems and (len(rows) != 1 or 0 in rows):
        problems = [f"{name} has {spec.shape[0]} rows" for (name, _), spec in zip(wanted, found, strict=True)]
    if problems:
        raise ShapeError(
            refusal(
                asked=f"running graph '{graph.name}' with dynamic batching",
                found="; ".join(problems),
                why="only dimension 0 may change, to the same size of at least 1 in all inputs",
                do="pad or cast the inputs, or trace for these shapes",
            )
        )
    return rows.pop()


def _any_rows(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join(['any', *map(str, spec.shape[1:])])}]"
