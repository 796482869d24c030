"""How much HBM a program needs on a core, by the categories that the runtime reports.

Weights, state and the largest moment of intermediate results are counted from the graphs; microcode is the runtime's
fixed reservation. A moment is the peak of the running body plus the results of earlier subgraphs that it or a later one
reads. It does not depend on cores or processes.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import nki
from ..base.wording import memory_table
from .ir import Graph, Program, Subprogram
from .passes import stage_programs
from .rules import find_rule
from .serialize import base_of, shares_memory

if TYPE_CHECKING:
    from torch import fx

    from ..hardware import Target

MICROCODE_BYTES = 96 * 1024**2
"""Reserved on each core (AWS Neuron documentation, Device Memory, "model code")."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """Bytes of HBM on one core, simulated."""

    weights: int
    """Parameters and constants."""
    kv_cache: int
    """Device-resident state, for one compiled batch."""
    scratch: int
    """Largest sum of live intermediate results, inside and between subgraphs."""
    code: int = MICROCODE_BYTES
    """Microcode of the core."""

    @property
    def total(self) -> int:
        """Sum of all categories."""
        return self.weights + self.kv_cache + self.scratch + self.code

    def table(self, available: int) -> str:
        """Text table with the share of `available` bytes.

        Example:
            ```python
            from optimum_neuron.compiler.memory import MemoryNeed

            print(MemoryNeed(weights=2 * 1024**3, kv_cache=0, scratch=0).table(16 * 1024**3))
            ```
        """
        return memory_table(dataclasses.asdict(self), available)


def memory_need(program: Program, target: Target | None = None) -> MemoryNeed:
    """Count what a program needs on a logical core of the fullest stage."""
    return fullest_need(stage_needs(program, target))


def fullest_need(
    needs: Sequence[MemoryNeed], *, cores_of_memory: int = 1, num_memories: int | None = None
) -> MemoryNeed:
    """Return what the fullest memory holds.

    Args:
        needs: of the core of each stage, or of each program that takes the next core.
        cores_of_memory: cores in a row that share a memory.
        num_memories: how many there are; programs beyond the last core start again at the first.
    """
    held: dict[int, list[MemoryNeed]] = {}
    for index, need in enumerate(needs):
        memory = index // cores_of_memory
        held.setdefault(memory if num_memories is None else memory % num_memories, []).append(need)
    return max((_sum(group, cores_of_memory) for group in held.values()), key=lambda need: need.total)


def _sum(needs: Sequence[MemoryNeed], num_cores: int) -> MemoryNeed:
    """Add needs; microcode is there once for each core."""
    total = {field.name: [getattr(need, field.name) for need in needs] for field in dataclasses.fields(MemoryNeed)}
    return MemoryNeed(**{name: sum(sizes[:num_cores] if name == "code" else sizes) for name, sizes in total.items()})


def stage_needs(program: Program, target: Target | None = None) -> tuple[MemoryNeed, ...]:
    """Count what a program needs on a logical core of each pipeline stage; without a target, on one physical core."""
    return tuple(_need(part, target) for part in stage_programs(program))


def _need(program: Program, target: Target | None) -> MemoryNeed:
    from .kernels import kernels_of

    held = [
        *program.constants.values(),
        *(t for key in kernels_of(program) for t in nki.stream_of(key).constants.values()),
    ]
    constants = sum(t.numel() * t.element_size() for t in held)
    peaks = {name: _peak_bytes(subprogram) for name, subprogram in program.subprograms.items()}
    rounded = _rounded_weights(program) if target is not None and target.keeps_rounded_weights else set()
    weights = sum(spec.size_bytes // (2 if name in rounded else 1) for name, spec in program.weights.items())
    return MemoryNeed(
        weights=weights + constants,
        kv_cache=sum(spec.size_bytes for spec in program.states.values()),
        scratch=max((_scratch_bytes(program, graph, peaks) for graph in program.graphs.values()), default=0),
        code=MICROCODE_BYTES * (1 if target is None else target.chip.default_lnc),
    )


def _rounded_weights(program: Program) -> set[str]:
    """Return the float32 weights that are rounded to 16 bits wherever they are read."""
    read: dict[str, bool] = {}
    for call in (call for graph in program.graphs.values() for call in graph.calls):
        nodes = program.subprograms[call.subprogram].body.graph.find_nodes(op="placeholder")
        for node, value in zip(nodes, call.inputs, strict=True):
            kind, _, name = value.partition(":")
            if kind == "weight":
                read[name] = read.get(name, True) and all(map(_is_rounding, node.users))
    return {name for name, rounded in read.items() if rounded and program.weights[name].dtype == "float32"}


def _is_rounding(node: fx.Node) -> bool:
    return _is_loaded_cast(node) and node.meta["val"].element_size() == 2


def _scratch_bytes(program: Program, graph: Graph, peaks: dict[str, int]) -> int:
    """Peak of a graph: the running body's peak, plus earlier results that are still read."""
    lies_in: dict[str, str] = {}  # a result, and the value whose memory it shares or has alone
    made: dict[str, tuple[int, int]] = {}  # position of the call, bytes
    last_use: dict[str, int] = {}
    for position, call in enumerate(graph.calls):
        last_use |= {lies_in[value]: position for value in call.inputs if value in lies_in}
        *nodes, output = program.subprograms[call.subprogram].body.graph.nodes
        values = dict(zip((node for node in nodes if node.op == "placeholder"), call.inputs, strict=True))
        for value, node in zip(call.outputs, map(base_of, output.args[0]), strict=True):
            if node not in values:
                made[value] = (position, _size_bytes(node.meta["val"]))
            home: str = values.setdefault(node, value)
            lies_in[value] = lies_in.get(home, home)
    last_use |= {lies_in[value]: len(graph.calls) for value in graph.outputs.values() if value in lies_in}

    def held(position: int) -> int:
        return sum(size for value, (begin, size) in made.items() if begin < position <= last_use.get(value, begin))

    return max((held(position) + peaks[call.subprogram] for position, call in enumerate(graph.calls)), default=0)


def _peak_bytes(subprogram: Subprogram) -> int:
    """Largest sum of live results while a body runs operator by operator; views and arguments are free."""
    nodes = list(subprogram.body.graph.nodes)
    last_use: dict[fx.Node, int] = {}
    for position, node in reversed(list(enumerate(nodes))):
        # A view keeps its base alive for as long as the view itself is used.
        until = last_use.get(node, position) if node.op == "call_function" and _aliases(node) else position
        for source in node.all_input_nodes:
            last_use[source] = max(until, last_use.get(source, 0))
    live = peak = 0
    ends: dict[int, list[int]] = {}
    for position, node in enumerate(nodes):
        if node.op == "call_function" and not _aliases(node):
            size = _size_bytes(node.meta["val"])
            live += size
            ends.setdefault(last_use.get(node, position), []).append(size)
        peak = max(peak, live + _kernel_bytes(node))
        live -= sum(ends.pop(position, ()))
    return peak


def _kernel_bytes(node: fx.Node) -> int:
    """HBM that an NKI kernel has for itself while it runs."""
    from .kernels import is_kernel

    return nki.stream_of(str(node.args[1])).private_bytes if is_kernel(node) else 0


def _aliases(node: fx.Node) -> bool:
    """Whether a result takes no memory of its own: a view, or an argument that is cast as operators load it."""
    return node.target is operator.getitem or shares_memory(node) or _is_loaded_cast(node)


def _is_loaded_cast(node: fx.Node) -> bool:
    rule = find_rule(str(node.target))
    if rule is None or rule.name != "cast":
        return False
    return base_of(node.args[0]).op == "placeholder" and all(user.op != "output" for user in node.users)


def _size_bytes(value: object) -> int:
    import torch

    if isinstance(value, (tuple, list)):
        return sum(map(_size_bytes, value))
    return value.nbytes if isinstance(value, torch.Tensor) else 0
