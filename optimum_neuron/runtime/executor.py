"""Run a program: bind weights and state once, check inputs, call the subprograms in order.

It does not depend on models or files. Weights and constants are bound when it is made; state tensors are passed with
each call, because one program may serve several batches.

This module also configures OpenMP and glibc. GNU's OpenMP, which torch has on Linux, keeps a team of threads for every
thread that ever ran an operator in parallel. As soon as there are more of them than cores, threads no longer wait for
each other actively but sleep, also in the only team that works: 8 rows of SmolLM2 then took 30 ms a step instead of 19.

glibc returns large blocks of memory at once, and the system hands out zeroed pages one fault at a time: a tenth of the
time of a MiniLM with 32 sentences. Blocks of more than 32 MiB stay of that kind. If they were not, the heap would be
one mapping that never shrinks below its last block, and `fork`, as in the workers of a DataLoader, fails once a single
mapping is larger than the memory of the machine.

    rest_threads()      # this thread leaves the work to others; its next parallel operator starts a team again
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..compiler import Call, Graph, Program, tensor_spec
from ..compiler.lower import CompiledFunction, HostFunction
from ..errors import ShapeError
from .segments import Segment, State, Step, Values

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass
class _Plan:
    """A graph with its values numbered; `template` holds the tensors bound at load."""

    template: Values
    inputs: list[int]
    states: list[int]
    steps: list[Step]
    parts: list[Step | Segment]
    """The steps, with consecutive compiled functions joined."""
    outputs: dict[str, int]


class Executor:
    """Calls the graphs of one program with bound weights.

    Example: see `tests/runtime/test_executor.py`.
    """

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, HostFunction],
        weights: Mapping[str, torch.Tensor],
        *,
        levels: str = "",
    ) -> None:
        self.program = program
        self.levels = levels
        """Levels of the host code, for reports."""
        self._plans = {name: _plan(program, graph, functions, weights) for name, graph in program.graphs.items()}

    def new_state(self) -> State:
        """Return zeroed state tensors, in the order in which `run` takes them."""
        import torch

        specs = self.program.states.values()
        return State(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs)

    def run(
        self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()
    ) -> dict[str, torch.Tensor]:
        """Execute a graph; state tensors change in place.

        Args:
            graph: name of the entry point.
            inputs: tensors in the order of `program.graphs[graph].inputs`.
            state: tensors in the order of `program.states`.
        """
        return self.bind(graph, inputs, state)()

    def bind(self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()) -> BoundCall:
        """Return the calls of a graph with these inputs and this state, whose contents may change between calls."""
        plan, values = self._bound(graph, inputs, state)
        return BoundCall(plan, values, state)

    def trace(
        self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()
    ) -> list[tuple[str, list[torch.Tensor]]]:
        """Execute a graph and return the results of every call with its module path, for finding a difference."""
        plan, values = self._bound(graph, inputs, state)
        trace = []
        for step, call in zip(plan.steps, self.program.graphs[graph].calls, strict=True):
            results = step.function([values[slot] for slot in step.arguments])
            for slot, result in zip(step.results, results, strict=True):
                values[slot] = result
            trace.append((call.module_path, results))
        return trace

    def _bound(self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor]) -> tuple[_Plan, Values]:
        """A graph's plan and its value table with inputs and state filled in."""
        check_inputs(self.program.graphs[graph], inputs)
        plan = self._plans[graph]
        values = plan.template.copy()
        for slot, tensor in zip(plan.inputs, inputs, strict=True):
            values[slot] = tensor.contiguous()  # host code is compiled for one layout
        for slot, tensor in zip(plan.states, state, strict=True):
            values[slot] = tensor
        return plan, values


class BoundCall:
    """Calls of a graph whose inputs and state are the same tensors each time."""

    def __init__(self, plan: _Plan, values: Values, state: Sequence[torch.Tensor]) -> None:
        self._values, self._outputs = values, plan.outputs
        self._parts = [part.bind(values, state) if isinstance(part, Segment) else part for part in plan.parts]

    def __call__(self) -> dict[str, torch.Tensor]:
        """Execute the graph and return its outputs."""
        values = self._values.copy()
        for part in self._parts:
            part.run(values)
        return {name: values[slot] for name, slot in self._outputs.items()}


def check_inputs(graph: Graph, inputs: Sequence[torch.Tensor]) -> None:
    """Compare all inputs with the compiled graph, and name every difference."""
    if len(inputs) == len(graph.inputs):
        actual = [tensor_spec(tensor) for tensor in inputs]
        if all(a == b for a, b in zip(actual, graph.inputs.values(), strict=True)):
            return
        problems = [
            f"{name} is {spec}, compiled for {expected}"
            for (name, expected), spec in zip(graph.inputs.items(), actual, strict=True)
            if spec != expected
        ]
    else:
        problems = [f"{len(inputs)} inputs, compiled for {len(graph.inputs)} ({', '.join(graph.inputs)})"]
    message = f"The inputs do not fit graph '{graph.name}': {'; '.join(problems)}."
    hint = "Pad or cast the inputs, or compile for these shapes."
    raise ShapeError(message, hint=hint, graph=graph.name, problems=problems)


def _plan(
    program: Program, graph: Graph, functions: Mapping[str, HostFunction], weights: Mapping[str, torch.Tensor]
) -> _Plan:
    slots: dict[str, int] = {}
    template: Values = []

    def slot(value: str) -> int:
        if value not in slots:
            slots[value] = len(template)
            kind, _, name = value.partition(":")
            bound = {"weight": weights, "const": program.constants}.get(kind)
            template.append(bound[name] if bound is not None else None)
        return slots[value]

    inputs = [slot(f"input:{name}") for name in graph.inputs]
    states = [slot(f"state:{name}") for name in program.states]
    calls = [(functions[c.subprogram], tuple(map(slot, c.inputs)), tuple(map(slot, c.outputs))) for c in graph.calls]
    abreast = _abreast(program, graph)
    outputs = {name: slot(value) for name, value in graph.outputs.items()}
    held = set(outputs.values())
    held.update(slot for slot, value in enumerate(template) if value is not None)
    steps = []
    for (function, arguments, results), num_abreast in zip(reversed(calls), reversed(abreast), strict=True):
        unused = tuple({*arguments, *results} - held)
        held.update(unused)
        steps.append(Step(function, arguments, results, unused, num_abreast))
    steps.reverse()
    parts: list[Step | Segment] = []
    for compiled, group in itertools.groupby(steps, key=lambda step: isinstance(step.function, CompiledFunction)):
        following = list(group)
        parts += [Segment(following, template, states, inputs)] if compiled else following
    return _Plan(template, inputs, states, steps, parts, outputs)


def _abreast(program: Program, graph: Graph) -> list[int]:
    """Return for each call how many from it on may run at the same time; 1 for those after the first of them."""
    counts: list[int] = []
    while len(counts) < len(graph.calls):
        number = _num_independent(program, itertools.islice(graph.calls, len(counts), None))
        counts += [number] + [1] * (number - 1)
    return counts


def _num_independent(program: Program, calls: Iterable[Call]) -> int:
    """Return how many calls, from the first on, are calls of one subprogram that do not depend on each other."""
    count, name, read, changed = 0, "", set[str](), set[str]()
    for call in calls:
        writes = {call.inputs[position] for position in program.subprograms[call.subprogram].mutated}
        if count and (call.subprogram != name or changed.intersection(call.inputs) or read & writes):
            break
        count, name = count + 1, call.subprogram
        read.update(call.inputs)
        changed.update(call.outputs, writes)
    return count


_SOFT = 1
"""omp.h: `omp_pause_soft`, which keeps what threads have stored."""


def rest_threads() -> bool:
    """End the OpenMP team of the calling thread; False within a parallel operator, or if torch's OpenMP cannot."""
    pause = _pause()
    return pause is not None and pause(_SOFT) == 0


@functools.cache
def _pause() -> Any:
    """The function of the OpenMP that torch is linked with."""
    from ..upstream.torch import C

    return getattr(ctypes.CDLL(C.__file__), "omp_pause_resource_all", None)


KEPT_BYTES = 512 * 1024**2
"""Free memory at the end of the heap that the process keeps."""

_LARGEST_FROM_HEAP = 32 * 1024**2  # glibc takes no larger value
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Make glibc keep freed memory in this process; False if the C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_FROM_HEAP) and mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES))
