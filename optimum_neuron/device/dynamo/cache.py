"""torch's compile caches for the backend "neuron": the keys, and the handling of a loaded graph.

torch has two caches on disk. AOTAutograd's cache maps Dynamo's graph to a forward and a backward graph; Inductor's FX
graph cache maps each of these to host code. Both keys contain `torch.compiler.config.cache_key_tag`. `key_tag` sets it
to everything that decides what this backend generates, so a changed option, target, or version of this package compiles
again, and the backend "inductor" never shares an entry with this one.

Each compiled graph is stored with a `CheckedGraph`: its border to the device and its part of the compile report.
`LoadedGraphs` reads it from a graph that came out of AOTAutograd's cache.

    loaded = LoadedGraphs(plan.frame)
    with caches(plan, loaded):
        function = compile_fx(graph_module, example_inputs, inner_compile=...)
    loaded.graphs
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ...compiler import add_members, kernels_in, members_of
from ...files.records import hash_of_sources
from ...simulator.work import GraphWork
from ...upstream.inductor import CUDAGraphPolicy
from .border import Border, HostFunction, attach
from .calls import Calls
from .estimate import Estimate
from .plan import Plan

KEYWORD = "neuron_graph"
"""Keyword of `compile_fx_inner` that carries the `CheckedGraph`: Inductor hashes its keywords and stores them."""

_PACKAGE = Path(__file__).resolve().parents[2]
_GENERATORS = ("compiler", "base/core.py", "device", "hardware", "nki", "simulator/work")
"""Code that checks, rewrites, estimates, or lowers a graph."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedGraph:
    """Facts about a graph besides its host code. It is stored in torch's caches, so it is plain data."""

    border: Border
    """Which inputs and results are device tensors."""
    kind: str
    """"inference", "forward", or "backward"."""
    num_calls: int
    host_ops: tuple[str, ...]
    """Operators that run on the host because the chip has none."""
    estimate: Estimate
    work: GraphWork
    """Work of a call, for its simulated time, without source lines: a key must not change with them."""
    kernels: tuple[tuple[str, bytes], ...] = ()
    """NKI kernels that it calls, as members of a NEFF: another process has not traced them."""

    def calls(self, frame: str) -> Calls:
        """Return where calls of this graph are counted, under torch's number of its frame."""
        return Calls(f"{self.kind} {frame}", self.work)


class LoadedGraphs(CUDAGraphPolicy):
    """Collects graphs that AOTAutograd's cache loads, and puts the border in front of their host code.

    AOTAutograd's cache returns Inductor's results without calling the backend. A policy for CUDA graphs is torch's only
    hook that wraps such a result; there are no CUDA graphs on the CPU.
    """

    def __init__(self, frame: str) -> None:
        self._frame = frame
        self.graphs: list[tuple[CheckedGraph, float]] = []
        """Loaded graphs, each with the seconds that loading it took."""
        self._last = time.perf_counter()

    def wrap_output(self, output_code: Any) -> Any:
        """Return host code with its border; called by torch for each graph that it loads."""
        checked = getattr(output_code, "fx_kwargs", {}).get(KEYWORD)
        if not isinstance(checked, CheckedGraph):
            return output_code
        add_members(dict(checked.kernels), "torch's cache")
        now = time.perf_counter()
        self.graphs.append((checked, now - self._last))
        self._last = now
        return attach(output_code, checked.border, checked.calls(self._frame))


def stored_kernels(graph_module: torch.fx.GraphModule) -> tuple[tuple[str, bytes], ...]:
    """Return the NKI kernels of a graph."""
    return tuple(members_of(kernels_in(graph_module)).items())


@contextlib.contextmanager
def caches(plan: Plan, loaded: LoadedGraphs) -> Iterator[None]:
    """Let AOTAutograd look up and store the graphs of a frame under the key of `plan`.

    Graphs that run operator by operator have no host code to store, so AOTAutograd's cache is off for them.
    """
    from ...upstream.inductor import inductor_config
    from ...upstream.torch import functorch_config, should_bundle_autograd_cache

    is_enabled = (
        functorch_config.enable_autograd_cache and plan.host_code.value != "aten" and not should_bundle_autograd_cache()
    )
    with (
        functorch_config.patch(enable_autograd_cache=is_enabled),
        # Inductor picks vector extensions when it loads code too: without its setting it compiles probes for each.
        inductor_config.patch({**plan.inductor_settings(), "cudagraph_policy": loaded}),
        key_tag(plan),
    ):
        yield


@contextlib.contextmanager
def key_tag(plan: Plan) -> Iterator[None]:
    """Put the options of `plan` and the hash of the generating code into the keys of torch's caches."""
    parts = (torch.compiler.config.cache_key_tag, "neuron", generator_hash(), plan.key)
    with torch.compiler.config.patch(cache_key_tag="|".join(parts)):
        yield


def inductor(
    graph_module: torch.fx.GraphModule,
    example_inputs: list[Any],
    *,
    plan: Plan,
    checked: CheckedGraph,
    **keywords: object,
) -> tuple[HostFunction, bool]:
    """Compile a host graph with Inductor, or load it from the FX graph cache.

    Returns:
        The host code, without its border, and whether it was loaded.
    """
    from ...upstream.inductor import compile_fx_inner, inductor_config, whole_operators
    from ...upstream.torch import counters

    before = counters["inductor"]["fxgraph_cache_hit"]
    settings = {**plan.inductor_settings(), "cudagraph_policy": None}
    with inductor_config.patch(settings), key_tag(plan), whole_operators():
        compiled = compile_fx_inner(graph_module, example_inputs, **keywords, **{KEYWORD: checked})
    return compiled, counters["inductor"]["fxgraph_cache_hit"] > before


@functools.cache
def generator_hash() -> str:
    """Hash of the installed code that generates graphs."""
    return hash_of_sources(_PACKAGE, _GENERATORS)[:32]
