"""Write the matrices of a LoRA adapter into the stacks of a linear layer, on every core.

A layer whose weight joins several modules of a checkpoint has the ranks of one after the other in its stacks: those of
a module see the layer's inputs, and change only its rows of the results.

Shape legend: I inputs, O outputs, R ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .shards import Shards, Split

if TYPE_CHECKING:
    import torch

Matrices = Mapping[str, "tuple[torch.Tensor, torch.Tensor]"]
"""Module of the checkpoint to its matrices [R, I] and [O, R], of which the second has the adapter's scale."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowRankStack:
    """The stacks of one linear layer, by index of the adapter."""

    down: Mapping[int, torch.Tensor]
    """Stack [adapters, R, I] of each core; cores that share it have the same tensor."""
    up: Mapping[int, torch.Tensor]
    """Stack [adapters, O, R] of each core."""
    inputs: Split
    """The layer's inputs on each core."""
    outputs: Mapping[str, Split]
    """Results of each module on each core, in their order."""
    targets: tuple[str, ...]
    """Modules that take adapters, in the order of their ranks."""
    max_rank: int

    def problems(self, matrices: Matrices) -> Iterator[str]:
        """Yield what is wrong with the matrices of the layer's modules."""
        for name in self.outputs.keys() & matrices.keys():
            down, up = matrices[name]
            actual, expected = (len(up), down.shape[1]), (self.outputs[name].size, self.inputs.size)
            if actual != expected:
                yield f"{name} has {actual[0]} x {actual[1]} elements, compiled for {expected[0]} x {expected[1]}"

    def write(self, index: int, matrices: Matrices) -> None:
        """Write an adapter; modules that it does not change get zeros, and so do all modules without matrices."""
        for rank, (down, up) in enumerate(zip(self.down.values(), self.up.values(), strict=True)):
            down[index].zero_()
            up[index].zero_()
            first = 0
            for name, split in self.outputs.items():
                if name in matrices:
                    own_down, own_up = matrices[name]
                    begin = self.targets.index(name) * self.max_rank
                    ranks = slice(begin, begin + len(own_down))
                    down[index, ranks] = self.inputs.part(own_down, 1, rank).to(down.dtype)
                    up[index, first : first + split.local_size, ranks] = split.part(own_up, 0, rank).to(up.dtype)
                first += split.local_size


def low_rank_stack(
    path: str,
    tensors: Mapping[str, torch.Tensor],
    *,
    names: tuple[str, str],
    sizes: Mapping[str, int],
    targets: tuple[str, ...],
    max_rank: int,
    shards: Shards,
) -> LowRankStack:
    """Return the stacks of a linear layer among the weights of a program.

    Args:
        path: of the layer.
        tensors: the program's weights; those of rank 2 are "name@2".
        names: of the two stacks in the layer.
        sizes: results of each module whose weights the layer joins.
        targets: modules that take adapters.
        max_rank: ranks of each.
        shards: weights of which every core has another part.
    """
    cores = range(shards.group_size)
    down, up = (f"{path}.{name}" for name in names)

    def by_core(name: str) -> dict[int, torch.Tensor]:
        return {rank: tensors[f"{name}@{rank}" if name in shards.of_weights else name] for rank in cores}

    def whole(size: int) -> Split:
        return Split(size=size, parts=(((0, size),),) * len(cores))

    down_tensors = by_core(down)
    divided = shards.of_weights[up].splits if up in shards.of_weights else map(whole, sizes.values())
    inputs = shards.of_weights[down].splits[0] if down in shards.of_weights else whole(down_tensors[0].shape[2])
    return LowRankStack(
        down=down_tensors,
        up=by_core(up),
        inputs=inputs,
        outputs=dict(zip(sizes, divided, strict=True)),
        targets=targets,
        max_rank=max_rank,
    )
