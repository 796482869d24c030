"""Quantized weights of experts: `gate_up_proj` and `down_proj` of a mixture, in three dimensions.

`common/experts.py` runs them, of families and of transformers' modules alike. Quantized weights have outputs before
inputs, also where plain ones have not.

Shape legend: E experts, O outputs, I inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from torch import nn

from ..upstream.modeling_files import DBRX_EXPERTS, JETMOE_EXPERTS, LONGCAT_EXPERTS
from ..weights import Scheme, Shard
from .quantized_parts import empty_parts, obstacle_of_inputs, part_name

_INPUTS_DIM = 2
_NAMES = ("gate_up_proj", "up_proj", "down_proj")
_ATTRIBUTES = ("num_experts", "has_gate", "has_bias", "is_transposed", "down_proj")
"""Attributes that `run_experts` needs; modules of transformers have them by a decorator."""
_OWN_FORWARD = (DBRX_EXPERTS.name, LONGCAT_EXPERTS.name, JETMOE_EXPERTS.name)
"""Classes with another implementation, in `generic/replacements.py`."""


@dataclasses.dataclass(frozen=True)
class ExpertWeight:
    """A weight of all experts of a layer."""

    owner: Any
    name: str
    path: str
    """Name of the parameter in the model."""

    @property
    def is_transposed(self) -> bool:
        """Whether plain weights have their inputs before their outputs."""
        return bool(self.owner.is_transposed)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight with outputs first, [E, O, I]."""
        first, *others = getattr(self.owner, self.name).shape
        return (first, *(others[::-1] if self.is_transposed else others))

    def quantized_shard(self, shard: Shard | None) -> Shard | None:
        """Return how the weight is divided once its outputs are first."""
        if shard is None or shard.dim == 0 or not self.is_transposed:
            return shard
        return Shard(3 - shard.dim, shard.splits)

    def obstacle(self, scheme: Scheme, shard: Shard | None) -> str | None:
        """Say why the weight is not quantized, or return None."""
        return obstacle_of_inputs(self.shape[2], scheme, self.quantized_shard(shard), _INPUTS_DIM)

    def convert(self, scheme: Scheme) -> None:
        """Give the module the parts of the weight, with the shapes that they have on one core."""
        before = getattr(self.owner, self.name)
        for part, parameter in empty_parts(self.shape, scheme, before.device).items():
            self.owner.register_parameter(part_name(self.name, part), parameter)


def expert_weights(module: nn.Module) -> Iterator[ExpertWeight]:
    """Weights of experts that `run_experts` runs."""
    for path, owner in module.named_modules():
        if type(owner).__name__ in _OWN_FORWARD or not all(hasattr(owner, name) for name in _ATTRIBUTES):
            continue
        for name in _NAMES:
            if isinstance(weight := getattr(owner, name, None), nn.Parameter) and weight.dim() == 3:
                yield ExpertWeight(owner, name, f"{path}.{name}")
