"""Run a compiled decoder at the positions that its caller names: the contract of `forward(ids, cache_ids, start_ids)`.

Position 0 begins new sequences, the next position continues them, and an earlier one takes tokens back. Padding on the
left is told by its length. It does not know sampling.

    runner = Positions(model)
    logits_RNV = runner(prompt_RC, 0)
    logits_RNV = runner(token_R1, prompt_RC.shape[1])

Shape legend: R rows, C columns, N columns of which logits are wanted, V vocabulary.
"""

from __future__ import annotations

import torch

from ..engine import Steps
from ..errors import ShapeError
from ..modeling import NeuronCache, NeuronModelForCausalLM
from ..upstream.cache_argument import CACHE


class Positions:
    """One batch of sequences in the cache of a decoder."""

    def __init__(self, model: NeuronModelForCausalLM) -> None:
        self._model = model
        self.reset()

    def reset(self) -> None:
        """Forget all sequences."""
        self._cache: NeuronCache | None = None
        self._steps: Steps | None = None
        self._mask_RC = torch.ones(0, 0, dtype=torch.long)
        self._num_new = 0

    @property
    def num_columns(self) -> int:
        """Columns that are in the cache, padding included."""
        return self._mask_RC.shape[1] + self._num_new

    def reorder(self, rows: torch.Tensor) -> None:
        """Let row i continue from the former row `rows[i]`, as beams do."""
        self._settle()
        num_rows = len(self._mask_RC)
        if rows.shape != (num_rows,) or bool(((rows < 0) | (rows >= num_rows)).any()):
            message = f"reorder_ids={rows.tolist()} does not name a former row for each of {num_rows} rows."
            hint = (
                f"Pass {num_rows} numbers from 0 to {num_rows - 1}." if num_rows else "Call forward with prompts first."
            )
            raise ShapeError(message, hint=hint, rows=rows.tolist(), num_rows=num_rows)
        if self._cache is not None:
            self._cache.reorder_cache(rows)
            self._mask_RC = self._mask_RC[rows]

    def __call__(
        self, ids_RC: torch.Tensor, position: int, starts_R: torch.Tensor | None = None, num_logits: int = 1
    ) -> torch.Tensor:
        """Add tokens at a position; return the logits [R, N, V] of the last `num_logits` columns.

        Args:
            ids_RC: the tokens.
            position: column of the first of them.
            starts_R: number of padding columns on the left of each row, for position 0.
            num_logits: columns of which logits are wanted.
        """
        if position == 0:
            self.reset()
        elif position > self.num_columns:
            message = f"cache_ids begins at {position}, but the cache holds {self.num_columns} tokens."
            hint = f"Continue at {self.num_columns}, or begin at 0 with the whole prompt."
            raise ShapeError(message, hint=hint, position=position, num_cached=self.num_columns)
        self._require_room(position + ids_RC.shape[1])
        if position and position == self.num_columns and ids_RC.shape[1] == 1:
            return self.step(ids_RC[:, 0])
        self._settle()
        if self._cache is not None and position < self.num_columns:
            self._cache.crop(position - self.num_columns)
            self._mask_RC = self._mask_RC[:, :position]
        new = torch.ones_like(ids_RC) if position else left_mask(ids_RC, starts_R)
        self._mask_RC = torch.cat([self._mask_RC, new], 1) if position else new
        output = self._model(
            ids_RC,
            attention_mask=self._mask_RC,
            use_cache=True,
            logits_to_keep=num_logits,
            **{CACHE: self._cache},
        )
        self._cache = output[CACHE]
        return output.logits

    def _require_room(self, num_columns: int) -> None:
        if num_columns > (most := self._model.sequence_length):
            message = f"The sequences would have {num_columns} tokens, but n_positions={most}."
            hint = f"Pass at most {most} tokens, or load the model with a larger n_positions."
            raise ShapeError(message, hint=hint, num_tokens=num_columns, n_positions=most)

    def step(self, tokens_R: torch.Tensor) -> torch.Tensor:
        """Add one token to each sequence, for which there has to be room; return the logits [R, 1, V]."""
        if self._steps is None:
            assert self._cache is not None, "a prompt came before"
            self._steps = self._model.decode_steps(self._cache, self._mask_RC)
        self._logits = self._steps(tokens_R)["logits"]
        self._num_new += 1
        return self._logits

    def _settle(self) -> None:
        """Tell the cache of the steps that were made."""
        if self._num_new and self._cache is not None:
            self._cache.add(self._num_new, self._logits)
            new = torch.ones(len(self._mask_RC), self._num_new, dtype=self._mask_RC.dtype)
            self._mask_RC = torch.cat([self._mask_RC, new], 1)
        self._num_new, self._steps = 0, None


def row_numbers(start_ids: object, num_rows: int) -> torch.Tensor:
    """Return the whole number that `start_ids` has for each row."""
    numbers_R = whole_numbers(start_ids)
    if numbers_R is None or numbers_R.shape != (num_rows,):
        shown = start_ids if numbers_R is None else numbers_R.tolist()
        raise ShapeError(
            f"start_ids={shown!r} has no whole number for each of {num_rows} rows.",
            hint=f"Pass a tensor [{num_rows}] of whole numbers.",
            start_ids=shown,
            num_rows=num_rows,
        )
    return numbers_R


def whole_numbers(value: object) -> torch.Tensor | None:
    """Return whole numbers as a tensor; None for anything else."""
    try:
        numbers = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return None if numbers.is_floating_point() or numbers.dtype == torch.bool else numbers


def left_mask(ids_RC: torch.Tensor, starts_R: torch.Tensor | None) -> torch.Tensor:
    """Return the attention mask of prompts with so many columns of padding on the left.

    >>> left_mask(torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 2])).tolist()
    [[1, 1, 1], [0, 0, 1]]
    """
    num_rows, num_columns = ids_RC.shape
    if starts_R is None:
        return torch.ones_like(ids_RC)
    starts_R = row_numbers(starts_R, num_rows)
    if bool((starts_R < 0).any() | (starts_R >= num_columns).any()):
        raise ShapeError(
            f"start_ids={starts_R.tolist()} does not fit {num_rows} prompts of {num_columns} tokens.",
            hint="Pass the number of padding tokens on the left of each prompt.",
            start_ids=starts_R.tolist(),
            shape=list(ids_RC.shape),
        )
    return (torch.arange(num_columns) >= starts_R[:, None]).long()
