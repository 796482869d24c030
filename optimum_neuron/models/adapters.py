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
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..errors import ModelError
from .plans import pattern_of
from .splitter import linear_size

STACK_NAMES = ("lora_A", "lora_B")
"""Parameters that a linear layer gets: [adapters and base, R, I] and [adapters and base, O, R]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdapterPlan:
    """Adapters that a program has room for."""

    max_loras: int
    """Adapters that are loaded at once."""
    max_rank: int
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
            message = f"The decoder computes with the weights of {listed} in a way that takes no adapters."
            raise ModelError(message, hint="Leave these modules out of lora_target_modules.", modules=sorted(wrong))

    def attach(self, linear: nn.Module, num_parts: int) -> None:
        """Give a linear layer its stacks, for results that so many modules of the checkpoint make."""
        num_adapters, num_ranks = self.plan.max_loras + 1, num_parts * self.plan.max_rank
        shapes = (num_adapters, num_ranks, linear_size(linear, 1)), (num_adapters, linear_size(linear, 0), num_ranks)
        for name, shape in zip(STACK_NAMES, shapes, strict=True):
            stack = torch.empty(shape, dtype=linear.weight.dtype, device="meta")
            linear.register_parameter(name, nn.Parameter(stack, requires_grad=False))
        # Before the hooks that join the results of several cores.
        linear.register_forward_hook(self._add, prepend=True)

    def _add(self, linear: nn.Module, inputs: tuple[torch.Tensor, ...], y: torch.Tensor) -> torch.Tensor:
        x, index_B = inputs[0], self._index_B
        assert index_B is not None, "the entry point chooses the rows' adapters"
        num_rows = len(index_B)
        if x.shape[0] != (num_rows if x.dim() > 2 else num_rows * self._num_tokens):
            return y  # not the tokens of the rows in their order: an expert's, for example
        self._called.add(linear)
        down_BRI, up_BOR = (getattr(linear, name).index_select(0, index_B) for name in STACK_NAMES)
        low_BTR = x.reshape(num_rows, -1, x.shape[-1]) @ down_BRI.transpose(1, 2)
        return y + (low_BTR @ up_BOR.transpose(1, 2)).reshape(y.shape)
