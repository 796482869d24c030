"""Graphs that `torch.compile` compiled in this process: why each was compiled, and where code broke into several.

    print(torch.neuron.compile_report())         # a table for people
    torch.neuron.compile_report().to_dict()      # the same as plain data

Each graph is also logged as it is compiled: `TORCH_LOGS="optimum_neuron.device.dynamo"` shows it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...base.core import Choice
from ..products import Library
from .estimate import Estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledGraph:
    """One graph: a forward, a backward, or an inference graph of one captured frame."""

    frame: str
    """Torch's number of the frame and of its compile, such as "0/1": frame 0, compiled again once."""
    kind: str
    """"inference", "forward" or "backward"."""
    why: str
    """Reason of the compile: first call, or the guard that failed."""
    loaded_from: str | None
    """"AOTAutograd's cache" or "Inductor's cache" if a graph of the same key was compiled before, else None."""
    num_calls: int
    host_ops: tuple[str, ...]
    """Operators that run on the host because the chip has none, such as "aten.sort"."""
    host_code: Choice[str]
    """Host level, and why."""
    products: Choice[Library]
    """Library that multiplies its float32 matrices on the host, and why."""
    target: Choice[str]
    """Target that it was checked for, and why."""
    auto_cast: str
    """Auto-cast that was applied, such as "matmul to bf16", or "none"."""
    estimate: Estimate
    compile_s: float
    """Host time to compile or load it, in seconds."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {name: part.to_dict() if hasattr(part, "to_dict") else part for name, part in vars(self).items()}
        return plain | {"host_ops": list(self.host_ops)}

    def __str__(self) -> str:
        times = f"{self.compile_s:>9.2f} {self.estimate.least_us:>12.3g}"
        why = f"{self.why}; from {self.loaded_from}" if self.loaded_from else self.why
        why += f"; on the host: {', '.join(self.host_ops)}" if self.host_ops else ""
        return f"{self.frame:<6} {self.kind:<10} {self.num_calls:>5} {times}  {self.host_code.value:<13} {why}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompileReport:
    """All graphs of this process, and graph breaks."""

    graphs: tuple[CompiledGraph, ...]
    breaks: Mapping[str, int]
    """Torch's reasons of graph breaks, with how often each occurred."""

    @property
    def num_recompiles(self) -> int:
        """Recompiled frames, because a guard of torch failed for a call."""
        return len({graph.frame for graph in self.graphs if not graph.frame.endswith("/0")})

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "graphs": [graph.to_dict() for graph in self.graphs],
            "breaks": dict(self.breaks),
            "num_recompiles": self.num_recompiles,
            "simulated": True,
            **{name: section.to_dict() for name, section in _sections.items()},
        }

    def __str__(self) -> str:
        targets = sorted({graph.target.value for graph in self.graphs})
        lines = [
            f"simulated target {', '.join(targets)}; at least: roofline bound on one core" if targets else "no graph"
        ]
        if self.graphs:
            lines.append(
                f"{'frame':<6} {'kind':<10} {'calls':>5} {'compile s':>9} {'at least us':>12}  {'host code':<13} why"
            )
        lines += map(str, self.graphs)
        lines += [f"graph break, {count} times: {reason.splitlines()[0]}" for reason, count in self.breaks.items()]
        others = [line for section in _sections.values() for line in section.lines()]
        if others and not self.graphs:
            lines = lines[1:]
        lines += others
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Section:
    """What another front end compiled."""

    to_dict: Callable[[], dict[str, Any]]
    lines: Callable[[], list[str]]
    clear: Callable[[], None]


_sections: dict[str, _Section] = {}
_graphs: list[CompiledGraph] = []
_lock = threading.Lock()


def add(graph: CompiledGraph) -> None:
    """Remember a graph."""
    with _lock:
        _graphs.append(graph)


def add_section(
    name: str, to_dict: Callable[[], dict[str, Any]], lines: Callable[[], list[str]], clear: Callable[[], None]
) -> None:
    """Add what another front end compiled to the report, as plain data and as lines of text."""
    _sections[name] = _Section(to_dict=to_dict, lines=lines, clear=clear)


def compile_report() -> CompileReport:
    """Graphs compiled with backend "neuron" since the process began or `torch._dynamo.reset()` was called.

    Example:
        ```python
        import torch

        double = torch.compile(lambda x: x * 2, backend="neuron", options={"optlevel": "1"})
        double(torch.ones(4, device="neuron"))
        assert torch.neuron.compile_report().graphs[-1].kind == "inference"
        ```
    """
    from ...upstream.torch import counters

    with _lock:
        return CompileReport(graphs=tuple(_graphs), breaks=dict(counters["graph_break"]))


def reset() -> None:
    """Forget all graphs; `torch._dynamo.reset()` calls it."""
    with _lock:
        _graphs.clear()
    for section in _sections.values():
        section.clear()
