"""One use of a model, and a loaded program that notes which graphs it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from ..compiler import group_size_of

if TYPE_CHECKING:
    import torch

    from ..compiler import Graph, Program
    from ..runtime import LoadedProgram, State


SEED = 0
"""Seed of the random inputs: a model is compared on the same ones each time."""

Results = Mapping[str, "torch.Tensor"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scenario:
    """One use of a model."""

    name: str
    """Description, for example "prompts of 24 tokens"."""
    run: Callable[[], Results]
    """Does it with the compiled model."""
    reference: Callable[[], Results]
    """Does it with the reference model; results have the same names, in the same order."""
    num_equal: int | None = None
    """Tokens of the first sequence that both models read alike, where one is padded behind them; None for all."""


class Recorder:
    """A loaded program that notes which graphs ran with which inputs; the engine takes it in place of the program.

    Its methods are those of `LoadedProgram`.
    """

    def __init__(self, loaded: LoadedProgram, weights: Mapping[str, torch.Tensor] = MappingProxyType({})) -> None:
        self._loaded, self.weights = loaded, weights
        self.calls: list[tuple[str, Sequence[torch.Tensor]]] = []
        """Graph and inputs of each call since the list was cleared."""
        self.graphs: set[str] = set()
        """Every graph that ran."""

    @property
    def program(self) -> Program:
        return self._loaded.program

    @property
    def group_size(self) -> int:
        """Cores that share every layer."""
        programs = (track.program for track in self._loaded.tracks)
        return max(group_size_of(program) for program in programs if program is not None)

    def run(self, graph: str, inputs: Sequence[torch.Tensor], state: Sequence[torch.Tensor] = ()) -> dict[str, Any]:
        self.calls.append((graph, inputs))
        self.graphs.add(graph)
        return self._loaded.run(graph, inputs, state)

    def trace(self, graph: str, inputs: Sequence[torch.Tensor], state: State) -> list[tuple[str, list[torch.Tensor]]]:
        return self._loaded.executor.trace(graph, inputs, state)

    def take_state(self, beside: State | None = None) -> State:
        return self._loaded.take_state(beside)

    def give_back(self, state: State) -> None:
        self._loaded.give_back(state)


def is_reachable(program: Program, graph: Graph) -> bool:
    """Return whether users can reach a graph.

    They cannot reach a chunk as long as the cache, a step behind its only slot, nor a chunk of a prompt with no more
    slots than a shorter chunk has tokens, because that one is taken.
    """
    num_slots = graph.sizes.get("num_slots")
    if graph.role == "prefill" and num_slots is not None:
        num_tokens = graph.inputs["input_ids"].shape[1]
        return not any(num_slots <= length < num_tokens for length in program.chunks("prefill"))
    if graph.role == "extend":
        return max(program.by_size("decode"), default=0) > graph.inputs["input_ids"].shape[1]
    return num_slots != 1


def flatten(output: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Tensors of a transformers result by name; an element of a tuple is "hidden_states.0". Results that are nested
    are left out.
    """
    tensors: dict[str, torch.Tensor] = {}
    for name, value in output.items():
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, (tuple, list)) and all(isinstance(part, torch.Tensor) for part in value):
            tensors |= {f"{name}.{index}": part for index, part in enumerate(value)}
    return tensors


def unflatten(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Inverse of `flatten`."""
    output: dict[str, Any] = {}
    for path, tensor in tensors.items():
        name, _, index = path.partition(".")
        output[name] = (*output.get(name, ()), tensor) if index else tensor
    return output
