"""One use of a model, run with the compiled model, which notes its graphs, and with the reference model.

The reference model rounds what the compiled model rounds: all it computes, or keys and values stored in 8 bits. The
tokens of a prompt attend to each other before their keys and values are stored, later tokens to what is stored.

    with computing_in(model, torch.bfloat16):
        logits = model(ids).logits
    logits = cached_logits(model, ids, torch.int8, num_exact=24)
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..base.transformers_types import PreTrainedModel
from ..compiler import group_size_of
from ..models import as_cached, forgetting, persistent_buffers

if TYPE_CHECKING:
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


@contextlib.contextmanager
def computing_in(reference: PreTrainedModel, dtype: torch.dtype) -> Iterator[None]:
    """Let a model compute in a narrow dtype; its own weights, statistics of norms among them, come back."""
    norms = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    tensors = [*reference.parameters(), *(buffer for _, buffer in persistent_buffers(reference))]
    weights = {tensor: tensor.data for tensor in tensors if tensor.is_floating_point()}
    try:
        for tensor, data in weights.items():
            tensor.data = data.to(dtype)
        with contextlib.ExitStack() as stack:
            stack.enter_context(forgetting(reference))
            # Inputs such as pixels are in float32: autocast rounds what is multiplied, but not what norms read.
            stack.enter_context(torch.autocast("cpu", dtype=dtype))
            for norm in (module for module in reference.modules() if isinstance(module, norms)):
                stack.enter_context(norm.register_forward_pre_hook(lambda _, inputs: (inputs[0].to(dtype),)))
            yield
    finally:
        for tensor, data in weights.items():
            tensor.data = data


def cache_dtype(program: Program) -> torch.dtype | None:
    """Return the dtype of 8 bits in which a program stores keys and values, or None for another one."""
    dtypes = {spec.dtype for name, spec in program.states.items() if name.startswith("key_cache.")}
    return next((getattr(torch, name) for name in dtypes if getattr(torch, name).itemsize == 1), None)


def cache_scales(weights: Mapping[str, torch.Tensor]) -> dict[int, list[torch.Tensor]]:
    """Return the scales of a checkpoint by which layers divide their keys and values, among a program's weights."""
    numbers = {int(found[1]) for name in weights if (found := re.search(r"layers\.(\d+)\.attention\.key_scale$", name))}
    return {
        number: [
            next(weights[name] for name in weights if name.endswith(f"layers.{number}.attention.{kind}"))
            for kind in ("key_scale", "value_scale")
        ]
        for number in numbers
    }


def cached_logits(
    reference: PreTrainedModel,
    ids_1T: torch.Tensor,
    dtype: torch.dtype,
    *,
    num_exact: int,
    scales: Mapping[int, Sequence[torch.Tensor]] = MappingProxyType({}),
    **options: torch.Tensor,
) -> torch.Tensor:
    """Return float32 logits [1, T, V] of the reference model with rounded keys and values.

    Args:
        dtype: what keys and values are stored in.
        num_exact: tokens at the beginning that attend to each other as they are; the others attend to stored ones.
        **options: what the model takes beside token ids, for each token.
    """
    from transformers import DynamicCache

    from ..upstream.cache_argument import CACHE

    cache = DynamicCache(config=reference.config)
    for number, layer in enumerate(cache.layers):
        if hasattr(layer, "update"):  # linear attention keeps no keys and values
            _store_in(layer, dtype, scales.get(number, ()), has_exact=num_exact > 0)
    num_tokens = ids_1T.shape[1]
    # One by one behind the first ones: models with states without slots start anew from several.
    ends = [num_exact, *range(num_exact + 1, num_tokens + 1)] if num_exact else [num_tokens]
    parts = []
    for first, end in itertools.pairwise([0, *ends]):
        own = {name: value[:, first:end] for name, value in options.items()}
        outputs = reference(ids_1T[:, first:end], use_cache=True, **{CACHE: cache}, **own)
        parts.append(outputs.logits.float())
    return torch.cat(parts, 1)


def _store_in(layer: Any, dtype: torch.dtype, scales: Sequence[torch.Tensor], *, has_exact: bool) -> None:
    """Let a layer of a transformers cache round keys and values; the first tokens may see theirs as they are."""
    store = layer.update

    def update(key: torch.Tensor, value: torch.Tensor, *args: Any, **options: Any) -> Any:
        is_first = layer.get_seq_length() == 0
        seen = store(*as_cached(dtype, key, value, scales), *args, **options)
        return (key, value) if is_first and has_exact else seen

    layer.update = update
