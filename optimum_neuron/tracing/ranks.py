"""Weights of a program that several ranks run: each rank's own, as one list for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ..base.wording import listed
from ..errors import WeightsError

if TYPE_CHECKING:
    from ..artifact import Artifact

_NUM_SHOWN = 12
"""Tensors that an error names; its data has all of them."""


def stacked(artifact: Artifact, ranks: Sequence[Mapping[str, torch.Tensor]]) -> list[torch.Tensor]:
    """Return a tensor for each weight in the metadata; where ranks have their own, one after the other.

    Args:
        ranks: for each rank its tensors by their names in the traced module.

    Raises:
        WeightsError: there are more or fewer ranks, tensors are missing or of another shape, or ranks have different
            values of a weight that the program has once.
    """
    shards, metadata = artifact.shards, artifact.metadata
    if len(ranks) != shards.group_size:
        message = f"There are weights of {len(ranks)} ranks, and the program is of {shards.group_size}."
        hint = "Pass a list with the weights of each rank, in their order."
        raise WeightsError(message, hint=hint, ranks=len(ranks), expected=shards.group_size)
    names = {sources[0]: name for name, sources in metadata["weight_sources"].items()}
    states = set(metadata["states"])
    missing = [f"{name} of rank {r}" for r, own in enumerate(ranks) for name in names if name not in own]
    if missing:
        message = f"The checkpoint has no {listed(missing, _NUM_SHOWN)}."
        raise WeightsError(message, hint="Divide the checkpoint of this model: shard_checkpoint.", missing=missing)
    problems: dict[str, str] = {}
    result = []
    for source in metadata["weights"]:
        if source in states and source not in ranks[0]:
            spec = artifact.program.states[f"{source}.0"]
            result.append(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)))
            continue
        parts = [own[source].detach().cpu() for own in ranks]
        if source in names:
            expected = artifact.program.weights[names[source]].shape
            wrong = [f"{list(one.shape)} on rank {r}" for r, one in enumerate(parts) if tuple(one.shape) != expected]
            if wrong:
                problems[source] = f"is {', '.join(wrong)} and not {list(expected)}"
                continue
        if names.get(source) in shards.of_weights:
            result.append(torch.cat(parts))
        elif all(torch.equal(parts[0], other) for other in parts[1:]):
            result.append(parts[0].clone())
        else:
            problems[source] = "has different values on different ranks, and no layer divides it"
    if problems:
        texts = [f"{name} {text}" for name, text in problems.items()]
        message = f"Weights do not fit the program: {listed(texts, _NUM_SHOWN, separator='; ')}."
        raise WeightsError(message, hint="Divide the checkpoint of this model: shard_checkpoint.", weights=problems)
    return result
