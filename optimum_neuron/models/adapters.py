"""LoRA adapters of a decoder: linear layers get stacks of matrices, and each row of a batch names its adapter.

Index 0 of a stack is zeros, the base model. Stacks are weights of the program that no checkpoint has: loading an
adapter writes one index, and compiles nothing. The part of a fused projection that each checkpoint module makes has its
own ranks in the stacks.

    family = with_adapters(family, max_loras=4, max_rank=16, targets=("q_proj", "v_proj"))
    with family.adapters.chosen(family.module, adapter_index_B, num_tokens):
        logits = family.module(...)

Sources: Hu et al. 2021, LoRA, section 4.1; Sheng et al. 2023, S-LoRA, section 4 (a batch with several adapters).
Shape legend: B batch, T tokens, I inputs, O outputs, R ranks of all parts of a layer.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import ConfigError, ModelError, nearest
from ..weights import Shard, Shards
from .plans import pattern_of
from .splitter import is_transposed, linear_size

if TYPE_CHECKING:
    from .registry import Family

BASE = 0
"""Index of the base model in every stack."""

STACK_NAMES = ("lora_A", "lora_B")
"""Parameters that a linear layer gets: [adapters and base, R, I] and [adapters and base, O, R]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterPlan:
    """Adapters that a program has room for."""

    max_loras: int
    """Adapters that are loaded at once."""
    max_rank: int
    """Largest rank of an adapter."""
    layers: Mapping[str, tuple[str, ...]]
    """Path of each linear layer, to the modules of the checkpoint whose part takes an adapter."""

    def under(self, prefix: str) -> AdapterPlan:
        """Return the same for layers whose paths begin with `prefix` and a dot."""
        return dataclasses.replace(self, layers={f"{prefix}.{path}": names for path, names in self.layers.items()})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AdapterPlan:
        """Inverse of `to_dict`."""
        layers = {path: tuple(names) for path, names in data["layers"].items()}
        return cls(max_loras=int(data["max_loras"]), max_rank=int(data["max_rank"]), layers=layers)


class RowAdapters:
    """The adapter of each row while a decoder runs; its linear layers add the row's matrices to their results."""

    def __init__(self, plan: AdapterPlan, *, needs_all: bool) -> None:
        self.plan = plan
        self._needs_all = needs_all
        self._index_B: torch.Tensor | None = None
        self._num_tokens = 0
        self._called: set[nn.Module] = set()
        self._adapted: set[str] = set()
        """Patterns of layers that added the matrices of rows in a graph."""
        self._left_out: set[str] = set()
        """Patterns of those that did not."""

    @contextlib.contextmanager
    def chosen(self, decoder: nn.Module, index_B: torch.Tensor, num_tokens: int) -> Iterator[None]:
        """Run a decoder on rows of so many tokens, each with the adapter of its index.

        A layer whose weight the decoder reads without calling the layer takes no adapters: a program has no stacks for
        it.

        Raises:
            ModelError: such a layer was named, or is called in some graphs only.
        """
        self._index_B, self._num_tokens = index_B, num_tokens
        self._called.clear()
        try:
            yield
        finally:
            self._index_B = None
        for path, module in decoder.named_modules():
            if hasattr(module, STACK_NAMES[0]):
                (self._adapted if module in self._called else self._left_out).add(pattern_of(path))
        wrong = self._left_out if self._needs_all else self._left_out & self._adapted
        if wrong:
            listed = ", ".join(sorted(wrong))
            raise ModelError(
                f"The decoder computes with the weights of {listed} in a way that takes no adapters.",
                hint="Leave these modules out of lora_target_modules.",
                modules=sorted(wrong),
            )

    def attach(self, linear: nn.Module, num_parts: int) -> None:
        """Give a linear layer its stacks, for results that so many modules of the checkpoint make."""
        num_adapters, num_ranks = self.plan.max_loras + 1, num_parts * self.plan.max_rank
        shapes = (num_adapters, num_ranks, linear_size(linear, 1)), (num_adapters, linear_size(linear, 0), num_ranks)
        for name, shape in zip(STACK_NAMES, shapes, strict=True):
            stack = torch.empty(shape, dtype=linear.weight.dtype, device="meta")
            linear.register_parameter(name, nn.Parameter(stack, requires_grad=False))
        # Before the hooks that join the results of several cores.
        linear.register_forward_hook(self._add, prepend=True)

    def _add(self, linear: Any, inputs: tuple[torch.Tensor, ...], y: torch.Tensor) -> torch.Tensor:
        x, index_B = inputs[0], self._index_B
        assert index_B is not None, "the entry point chooses the rows' adapters"
        num_rows = len(index_B)
        if x.shape[0] != (num_rows if x.dim() > 2 else num_rows * self._num_tokens):
            return y  # not the tokens of the rows in their order: an expert's, for example
        self._called.add(linear)
        down_BRI, up_BOR = (getattr(linear, name).index_select(0, index_B) for name in STACK_NAMES)
        low_BTR = x.reshape(num_rows, -1, x.shape[-1]) @ down_BRI.transpose(1, 2)
        return y + (low_BTR @ up_BOR.transpose(1, 2)).reshape(y.shape)


def with_adapters(family: Family, *, max_loras: int, max_rank: int, targets: Collection[str] | None) -> Family:
    """Return a decoder with stacks in its linear layers; the module is changed in place.

    Args:
        family: the decoder, divided among cores already.
        max_loras: adapters that are loaded at once.
        max_rank: largest rank of an adapter.
        targets: ends of the names of modules in the checkpoint, as PEFT's `target_modules`; None for all linear layers
            of the decoder's layers.

    Raises:
        ConfigError: no module has such a name, or no matrix has such a rank.
    """
    linears = _linear_layers(family)
    names = sorted({name.rpartition(".")[2] for sources in linears.values() for name in sources})
    unknown = [target for target in targets or () if not any(_ends(n, target) for s in linears.values() for n in s)]
    if unknown or not linears:
        listed = ", ".join(f"{name!r}{nearest(name, names)}" for name in unknown)
        raise ConfigError(
            f"lora_target_modules names no linear layer of this decoder: {listed}."
            if unknown
            else "max_loras is not supported: this decoder has no linear layers that take adapters.",
            hint=f"Use {', '.join(names)}." if names else "Remove max_loras.",
            option="lora_target_modules",
            value=unknown,
            choices=names,
        )
    layers = {
        path: parts
        for path, sources in linears.items()
        if (parts := tuple(n for n in sources if targets is None or any(_ends(n, target) for target in targets)))
    }
    largest = max(linear_size(family.module.get_submodule(path), dim) for path in layers for dim in (0, 1))
    if max_rank > largest:
        message = f"max_lora_rank={max_rank} is more than the {largest} inputs or outputs of the largest layer."
        hint = "Pass the rank of your adapters, usually 8 to 64."
        raise ConfigError(message, hint=hint, option="max_lora_rank", value=max_rank, largest=largest)
    plan = AdapterPlan(max_loras=max_loras, max_rank=max_rank, layers=layers)
    adapters = RowAdapters(plan, needs_all=targets is not None)
    sources, shards = dict(family.weight_sources), dict(family.shards.of_weights)
    for path, parts in layers.items():
        linear = family.module.get_submodule(path)
        adapters.attach(linear, len(parts))
        sources |= {f"{path}.{name}": () for name in STACK_NAMES}
        if weight := shards.get(f"{path}.weight"):
            shards |= _shard_of_stack(path, weight, is_transposed(linear))
    return dataclasses.replace(
        family, weight_sources=sources, shards=Shards(family.shards.group_size, shards), adapters=adapters
    )


def _linear_layers(family: Family) -> dict[str, tuple[str, ...]]:
    """Linear layers inside the decoder's layers, each with the modules of the checkpoint that make its results."""
    layers = {}
    for path, module in family.module.named_modules():
        owner, _, name = path.rpartition(".")
        excluded = getattr(family.module.get_submodule(owner), "without_adapters", ())
        is_linear = (type(module) is nn.Linear or is_transposed(module)) and name not in excluded
        sources = family.weight_sources.get(f"{path}.weight", ()) if is_linear and pattern_of(path) != path else ()
        if sources:
            layers[path] = tuple(source.removesuffix(".weight") for source in sources)
    return layers


def _ends(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _shard_of_stack(path: str, weight: Shard, transposed: bool) -> dict[str, Shard]:
    """The stack whose dimension of inputs or of results is divided as the layer's weight."""
    is_of_inputs = (weight.dim == 1) != transposed
    name, dim = (STACK_NAMES[0], 2) if is_of_inputs else (STACK_NAMES[1], 1)
    return {f"{path}.{name}": Shard(dim, weight.splits)}
