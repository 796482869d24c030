"""Batches padded to a few lengths, so that compiled graphs are few.

Upstream's collators have `pad_to_multiple_of`; `BucketCollator` is for all others, and for custom lengths (`optimum-cli
neuron buckets suggest` finds good ones). It does not depend on models.

    >>> from optimum_neuron.trainer import BucketCollator
    >>> collator = BucketCollator(buckets=(4, 8))
    >>> collator([{"input_ids": [5, 6], "labels": [5, 6]}, {"input_ids": [7], "labels": [7]}])["labels"].tolist()
    [[5, 6, -100, -100], [7, -100, -100, -100]]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base.labels import IGNORED
from ..engine import choose_bucket
from ..errors import ConfigError, invalid_choice


@dataclasses.dataclass(frozen=True, kw_only=True)
class BucketCollator:
    """Pads every sequence of a batch to the smallest bucket that holds the longest.

    Example:
        ```python
        from optimum_neuron.trainer import BucketCollator

        batch = BucketCollator(buckets=(4, 8), pad_token_id=9)([{"input_ids": [1, 2, 3, 4, 5]}])
        assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5, 9, 9, 9]]
        assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0]]
        ```
    """

    buckets: tuple[int, ...]
    """Lengths in tokens, ascending."""
    pad_token_id: int = 0
    """Padding of `input_ids`; masks are padded with 0, labels with -100."""
    padding_side: str = "right"
    """"right" or "left"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "buckets", tuple(self.buckets))
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or self.buckets[0] < 1:
            message = f"buckets={self.buckets} are not ascending lengths."
            raise ConfigError(message, hint="Pass lengths such as (128, 256).", option="buckets", value=self.buckets)
        if self.padding_side not in ("right", "left"):
            raise invalid_choice("padding_side", self.padding_side, ["right", "left"])

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Make one batch.

        Args:
            rows: examples; columns as long as `input_ids` are padded with it, the others are stacked.
        """
        lengths = [len(row["input_ids"]) for row in rows]
        longest, hint = max(lengths), f"Truncate to {self.buckets[-1]} tokens, or add a bucket."
        measure = f"{longest} tokens"
        length = choose_bucket(longest, self.buckets, subject="A sequence", measure=measure, hint=hint).value
        batch = {
            name: torch.stack([self._padded(name, row[name], n, length) for row, n in zip(rows, lengths, strict=True)])
            for name in rows[0]
        }
        if "attention_mask" not in batch:
            masks = [self._padded("attention_mask", [1] * n, n, length) for n in lengths]
            batch["attention_mask"] = torch.stack(masks)
        return batch

    def _padded(self, name: str, value: object, num_tokens: int, length: int) -> torch.Tensor:
        tensor = torch.as_tensor(value)
        if tensor.ndim == 0 or len(tensor) != num_tokens:
            return tensor
        fill = self.pad_token_id if name == "input_ids" else IGNORED if "label" in name else 0
        padding = tensor.new_full((length - num_tokens, *tensor.shape[1:]), fill)
        return torch.cat([tensor, padding] if self.padding_side == "right" else [padding, tensor])
