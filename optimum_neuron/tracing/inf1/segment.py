"""A segment as a module that is compiled: its operations run one after the other, in stages of NeuronCore Pipeline.

Each stage is a submodule, so that the compiler can cut there. Stages are of about equal work: multiplications of the
operations, counted on the example inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ...base.balance import stage_of_each
from .graph import Operation, Value
from .parts import Part
from .run import Environment, run

STAGE = "stage_"
"""Beginning of the names of stages."""


class Stage(nn.Module):
    """Operations of one core."""

    def __init__(
        self,
        operations: Sequence[Operation],
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        static: Mapping[Value, Any],
        half: bool,
    ) -> None:
        super().__init__()
        self._half = half
        self._operations, self._inputs, self._outputs, self._static = operations, inputs, outputs, dict(static)
        self._names: dict[Value, str] = {}
        for value in dict.fromkeys(value for one in operations for value in one.inputs):
            if value.weight is not None:
                name = f"weight_{len(self._names)}_{value.name.replace('.', '_')}"
                self._names[value] = name
                weight = value.weight.detach()
                self.register_buffer(name, half_of(weight) if half else weight)

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the operations."""
        environment: Environment = {**self._static, **dict(zip(self._inputs, tensors, strict=True))}
        environment.update({value: getattr(self, name) for value, name in self._names.items()})
        for operation in self._operations:
            if not all(value in environment for value in operation.outputs):
                run(operation, environment, on_core=True, half=self._half)
        return tuple(environment[value] for value in self._outputs)


class Segment(nn.Module):
    """A part of a model on one core, or on several as stages; takes and returns tensors.

    Args:
        part: the operations.
        example: every value of the example inputs.
        static: values that follow from shapes.
        num_stages: stages of NeuronCore Pipeline.
        half: compute in float16 what the model has in float32.
    """

    def __init__(
        self, part: Part, example: Environment, static: set[Value], *, num_stages: int = 1, half: bool = False
    ) -> None:
        super().__init__()
        known = {value: example[value] for value in static if value in example}
        self._inputs, self._outputs = part.inputs, part.outputs
        groups = divide(part.operations, example, num_stages)
        self.num_stages = len(groups)
        """Stages that the operations could be divided into."""
        self._links: list[tuple[list[Value], list[Value]]] = []
        for index, group in enumerate(groups):
            later = {v for other in groups[index + 1 :] for o in other for v in _read(o, known)}
            reads = list(dict.fromkeys(v for o in group for v in _read(o, known)))
            own = {v for o in group for v in o.outputs}
            gives = [v for o in group for v in o.outputs if v in later or v in part.outputs]
            self._links.append(([v for v in reads if v not in own], gives))
            self.add_module(f"{STAGE}{index}", Stage(group, *self._links[-1], known, half))

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the stages."""
        values = dict(zip(self._inputs, tensors, strict=True))
        for index, (reads, gives) in enumerate(self._links):
            results = self.get_submodule(f"{STAGE}{index}")(*(values[value] for value in reads))
            values.update(zip(gives, results, strict=True))
        return tuple(values[value] for value in self._outputs)


def half_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of float32 in float16, and others as they are."""
    return tensor.half() if tensor.dtype == torch.float32 else tensor


def _read(operation: Operation, known: Mapping[Value, Any]) -> list[Value]:
    """Return the values that an operation reads and that have to be passed to it."""
    return [v for v in operation.inputs if not v.is_constant and v.weight is None and v not in known]


def divide(operations: Sequence[Operation], example: Environment, num_stages: int) -> list[list[Operation]]:
    """Divide operations into stages of about equal work; fewer where there are fewer operations that compute."""
    groups = _units(operations)
    work = [sum(work_of(operation, example) for operation in group) for group in groups]
    stage_of_group = stage_of_each(work, num_stages)
    stages: list[list[Operation]] = [[] for _ in range(1 + max(stage_of_group))]
    for group, stage in zip(groups, stage_of_group, strict=True):
        stages[stage] += group
    return stages


def _units(operations: Sequence[Operation]) -> list[list[Operation]]:
    """Group operations that belong together: bookkeeping with who reads it, and a list with who takes it apart."""
    units: list[list[Operation]] = []
    waiting: list[Operation] = []
    for operation in operations:
        if not operation.kind.startswith("aten::"):
            is_unpack = operation.kind in ("prim::ListUnpack", "prim::TupleUnpack")
            (units[-1] if is_unpack and units and not waiting else waiting).append(operation)
            continue
        units.append([*waiting, operation])
        waiting = []
    if waiting and units:
        units[-1] += waiting
    return units or [list(operations)]


def work_of(operation: Operation, example: Environment) -> int:
    """Multiplications of an operation, or the elements that it makes."""
    made = sum(value.numel() for value in map(example.get, operation.outputs) if isinstance(value, torch.Tensor))
    weights = [value.weight for value in operation.inputs if value.weight is not None and value.weight.dim() > 1]
    if weights:
        return made * weights[0].numel() // max(1, weights[0].shape[0])
    if operation.kind in ("aten::matmul", "aten::bmm", "aten::baddbmm", "aten::scaled_dot_product_attention"):
        first = example.get(operation.inputs[0])
        return made * (first.shape[-1] if isinstance(first, torch.Tensor) and first.dim() else 1)
    return made
