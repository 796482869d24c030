"""Batches padded to a few lengths, so that compiled graphs are few.

Upstream's collators have `pad_to_multiple_of`; `BucketCollator` is for all others, and for lengths of one's own choice
(`optimum-cli neuron buckets suggest` finds good ones). It knows nothing of models.

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

from ..errors import ConfigError, ShapeError, refusal
from ..labels import IGNORED


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
    """What `input_ids` are padded with; masks get 0, labels get -100."""
    padding_side: str = "right"
    """"right" or "left"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "buckets", tuple(self.buckets))
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)) or self.buckets[0] < 1:
            raise ConfigError(
                refusal(
                    asked=f"buckets={self.buckets}",
                    found="no ascending lengths",
                    why="a batch goes to the smallest bucket that holds it",
                    do="pass lengths such as (128, 256)",
                )
            )
        if self.padding_side not in ("right", "left"):
            raise ConfigError(
                refusal(
                    asked=f"padding_side={self.padding_side!r}",
                    found="no side",
                    why="padding stands before or after the tokens",
                    do="pass 'right' or 'left'",
                )
            )

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Make one batch.

        Args:
            rows: examples; what has as many entries as `input_ids` is padded with it, everything else is stacked.

        Raises:
            ShapeError: a sequence is longer than the largest bucket.
        """
        lengths = [len(row["input_ids"]) for row in rows]
        length = self._bucket(max(lengths))
        batch = {
            name: torch.stack([self._padded(name, row[name], n, length) for row, n in zip(rows, lengths, strict=True)])
            for name in rows[0]
        }
        if "attention_mask" not in batch:
            masks = [self._padded("attention_mask", [1] * n, n, length) for n in lengths]
            batch["attention_mask"] = torch.stack(masks)
        return batch

    def _bucket(self, longest: int) -> int:
        found = next((bucket for bucket in self.buckets if bucket >= longest), None)
        if found is not None:
            return found
        raise ShapeError(
            refusal(
                asked=f"a batch with {longest} tokens in a row",
                found=f"buckets {', '.join(map(str, self.buckets))}",
                why="nothing is cut off silently",
                do=f"truncate to {self.buckets[-1]} tokens, or add a bucket",
            )
        )

    def _padded(self, name: str, value: Any, num_tokens: int, length: int) -> torch.Tensor:
        tensor = torch.as_tensor(value)
        if tensor.ndim == 0 or len(tensor) != num_tokens:
            return tensor
        fill = self.pad_token_id if name == "input_ids" else IGNORED if "label" in name else 0
        padding = tensor.new_full((length - num_tokens, *tensor.shape[1:]), fill)
        return torch.cat([tensor, padding] if self.padding_side == "right" else [padding, tensor])
