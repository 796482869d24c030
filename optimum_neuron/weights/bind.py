"""Bind a program's weights to checkpoint tensors by name, and check all of them before anything runs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..base.core import TensorSpec
from ..base.wording import listed
from ..errors import WeightsError, nearest
from .checkpoint import TensorSource
from .mapped import convert, drop_pages_of
from .shards import Shards

if TYPE_CHECKING:
    import torch

_NUM_SHOWN = 12
"""Problems listed in the message of an error; `details` has all."""

Sources = Mapping[str, tuple[str, ...]]
"""Weight name of a program to the checkpoint tensors that are joined along dimension 0; empty for a weight that begins
as zeros and is written later, such as room for adapters."""


class BoundTensors(Mapping[str, "torch.Tensor"]):
    """Tensors by name; a copy of what a file has can be forgotten, and is made again when it is read."""

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        copy: Mapping[str, Callable[[], torch.Tensor]],
        source: TensorSource | None = None,
    ) -> None:
        self._tensors: dict[str, torch.Tensor | None] = dict(tensors)
        self._copy, self._source = copy, source  # a file whose pages are dropped stays open

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self._tensors[name]
        if tensor is None:
            tensor = self._tensors[name] = self._copy[name]()
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __or__(self, others: Mapping[str, torch.Tensor]) -> BoundTensors:
        return BoundTensors({**self._tensors, **others}, self._copy, self._source)

    def forget(self, name: str) -> None:
        """Let the memory of a tensor go, as after a copy of it in another layout."""
        if name in self._copy:
            self._tensors[name] = None
        else:
            drop_pages_of(self[name])


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundWeights:
    """Tensors for a program, and how many bytes were mapped or copied."""

    tensors: BoundTensors
    mapped_bytes: int
    """Bytes that are views of the file."""
    copied_bytes: int
    """Bytes that were copied, because tensors are not neighbors in the file or have another dtype."""


def bind_weights(
    specs: Mapping[str, TensorSpec],
    sources: Sources,
    checkpoint: TensorSource,
    shards: Shards = Shards(),  # noqa: B008  (frozen)
) -> BoundWeights:
    """Return a tensor for every weight of a program.

    Args:
        specs: Weights that the program needs.
        sources: which checkpoint tensors make each weight.
        checkpoint: where they are.
        shards: weights of which every core has another part; rank 2 finds its own under "name@2".
    """

    whole = {
        name: shards.of_weights[name].whole(spec) if name in shards.of_weights else spec
        for name, spec in specs.items()
        if sources[name]
    }
    problems = _problems(whole, sources, checkpoint)
    if problems:
        shown = listed(problems, _NUM_SHOWN, separator="; ")
        message = f"{checkpoint.origin} does not fit the compiled model ({shown})."
        hint = "Pass the checkpoint that was exported, or a fine-tuned one of the same architecture."
        raise WeightsError(message, hint=hint, problems=problems)
    tensors: dict[str, torch.Tensor] = {}
    copy: dict[str, Callable[[], torch.Tensor]] = {}
    zeros: dict[TensorSpec, torch.Tensor] = {}
    size_bytes = dict.fromkeys(("mapped", "copied", "shared"), 0)
    for name, spec in specs.items():
        if not sources[name]:
            tensors |= _room(name, spec, shards)
            continue
        copied_before = size_bytes["copied"]
        for rank, (own, tensor, kind) in enumerate(_parts(name, spec, sources[name], checkpoint, shards, zeros)):
            tensors[own] = tensor
            size_bytes[kind] += spec.size_bytes
            if kind == "copied":
                copy[own] = functools.partial(_copy, name, rank, spec, sources[name], checkpoint, shards)
        if size_bytes["copied"] > copied_before:
            checkpoint.drop_pages(sources[name])
    bound = BoundTensors(tensors, copy, checkpoint)
    return BoundWeights(tensors=bound, mapped_bytes=size_bytes["mapped"], copied_bytes=size_bytes["copied"])


def _room(name: str, spec: TensorSpec, shards: Shards) -> dict[str, torch.Tensor]:
    """Zeros for a weight that no checkpoint has; cores of which each has another part have their own."""
    import torch

    ranks = range(shards.group_size) if name in shards.of_weights else [None]
    names = [name if rank is None else f"{name}@{rank}" for rank in ranks]
    return {own: torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for own in names}


def _parts(
    name: str,
    spec: TensorSpec,
    sources: tuple[str, ...],
    checkpoint: TensorSource,
    shards: Shards,
    zeros: dict[TensorSpec, torch.Tensor],
) -> Iterator[tuple[str, torch.Tensor, str]]:
    """Yield a weight, or the part of each core, with its name and its kind: "mapped", "copied", or "shared".

    Parts that consist of padding share a tensor in `zeros`.
    """
    import torch

    dtype = getattr(torch, spec.dtype)
    shard = shards.of_weights.get(name)
    if shard is None:
        tensor, copied = checkpoint.join(sources)
        yield name, convert(tensor, dtype), "copied" if copied or tensor.dtype != dtype else "mapped"
        return
    tensors = [checkpoint.join([source])[0] for source in sources]
    files = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    for rank in range(shards.group_size):
        if shard.is_zero(rank):
            kind = "shared" if spec in zeros else "copied"
            if spec not in zeros:
                zeros[spec] = torch.zeros(spec.shape, dtype=dtype)
            yield f"{name}@{rank}", zeros[spec], kind
            continue
        part = convert(shard.part(tensors, rank), dtype)
        yield f"{name}@{rank}", part, "mapped" if part.untyped_storage().data_ptr() in files else "copied"


def _copy(
    name: str, rank: int, spec: TensorSpec, sources: tuple[str, ...], checkpoint: TensorSource, shards: Shards
) -> torch.Tensor:
    """Return a weight, or the part of a core, in memory that no other tensor has."""
    import torch

    shard = shards.of_weights.get(name)
    if shard is None:
        tensor = checkpoint.join(sources)[0]
    else:
        tensor = shard.part([checkpoint.join([source])[0] for source in sources], rank)
    copy = convert(tensor, getattr(torch, spec.dtype))
    checkpoint.drop_pages(sources)
    return copy


def _problems(specs: Mapping[str, TensorSpec], sources: Sources, checkpoint: TensorSource) -> list[str]:
    available = checkpoint.specs
    problems = []
    for name, spec in specs.items():
        absent = [source for source in sources[name] if source not in available]
        if absent:
            problems += [f"{source} is missing{nearest(source, available)}" for source in absent]
            continue
        shapes = [available[source].shape for source in sources[name]]
        if _joined_shape(shapes) != spec.shape:
            shape = " + ".join(str(list(shape)) for shape in shapes)
            problems.append(f"{' + '.join(sources[name])} has shape {shape}, compiled for {list(spec.shape)}")
        problems += [
            f"{source} has {available[source].dtype}, compiled for {spec.dtype}"
            for source in sources[name]
            if is_float(available[source]) != is_float(spec)
        ]
    return problems


def _joined_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape of tensors that are joined along dimension 0; None if they cannot be."""
    if len(shapes) == 1:
        return shapes[0]
    if () in shapes or len({shape[1:] for shape in shapes}) > 1:
        return None
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])


def is_float(spec: TensorSpec) -> bool:
    """Return whether a tensor has numbers that mean something without a scale."""
    return spec.dtype in ("float64", "float32", "float16", "bfloat16")  # eight bits are quantized
