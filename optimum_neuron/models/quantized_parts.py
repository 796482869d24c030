"""The parts of a quantized weight as parameters, and their share on each core; for matrices and for experts.

Dimensions are those of the quantized weight, [..., outputs, inputs].
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ..weights import ZEROS, Scheme, Shard, Split


def empty_parts(shape: Sequence[int], scheme: Scheme, device: torch.device) -> dict[str, nn.Parameter]:
    """Return a parameter without values for each part of a weight."""
    return {
        part: nn.Parameter(
            torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device), requires_grad=False
        )
        for part, spec in scheme.specs(*shape).items()
    }


def part_name(name: str, part: str) -> str:
    """Name of the parameter that has a part of a weight."""
    return name if part == "values" else f"{name}_{part}"


def obstacle_of_inputs(num_inputs: int, scheme: Scheme, shard: Shard | None, inputs_dim: int) -> str | None:
    """Say why groups do not fit the inputs of a weight, whole or divided, or return None."""
    if not scheme.fits(num_inputs):
        return f"its {num_inputs} inputs are not divided by groups of {scheme.group_size}"
    if shard is not None and shard.dim == inputs_dim and scheme.group_size and not _is_aligned(shard, scheme.unit):
        return f"its share on a core divides a group of {scheme.group_size}"
    return None


def part_shard(shard: Shard | None, scheme: Scheme, part: str, inputs_dim: int) -> Shard | None:
    """Return how a part is divided, of a weight that is divided like this."""
    if shard is None or shard.dim != inputs_dim:
        return shard
    if part != "values":
        return _in_units(shard, scheme.group_size) if scheme.group_size else None
    return _in_units(shard, scheme.per_byte)


def _is_aligned(shard: Shard, unit: int) -> bool:
    return all(
        length % unit == 0 and (start == ZEROS or start % unit == 0)
        for own in shard.splits[0].parts
        for start, length in own
    )


def _in_units(shard: Shard, unit: int) -> Shard:
    """The same split, of a dimension that has one element for so many."""
    splits = [
        Split(
            size=split.size // unit,
            parts=tuple(
                tuple((start if start == ZEROS else start // unit, length // unit) for start, length in own)
                for own in split.parts
            ),
        )
        for split in shard.splits
    ]
    return Shard(shard.dim, tuple(splits))
