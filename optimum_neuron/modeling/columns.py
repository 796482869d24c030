"""Which columns of a padded batch hold tokens: what the mask of a call may say, and where columns are not tokens.

A compiled decoder keeps the tokens of a row without gaps, so its windows count tokens. The masks of transformers count
columns. Padding before and behind the tokens of a call is left out here, so a padded row is like the row alone. A hole,
a column without a token between two tokens of one call, makes a difference to layers with a window, which is an error.

Shape legend: R rows, C columns, P columns of earlier calls, T new columns, N tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..errors import ShapeError
from ..models import Reach

_INPUT = "attention_mask"


class Columns:
    """The columns of earlier calls: tokens, holes, and padding."""

    def __init__(self) -> None:
        self._tokens_RP = self._holes_RP = torch.zeros(0, 0, dtype=torch.bool)

    def copy(self) -> Columns:
        """Return a copy."""
        copied = Columns()
        copied._tokens_RP, copied._holes_RP = self._tokens_RP, self._holes_RP
        return copied

    def select(self, rows: Sequence[int]) -> None:
        """Let row i have the columns of the former row `rows[i]`."""
        if len(self._tokens_RP):
            self._tokens_RP, self._holes_RP = self._tokens_RP[rows], self._holes_RP[rows]

    def crop(self, num_left: int) -> None:
        """Keep the first columns only."""
        self._tokens_RP, self._holes_RP = self._tokens_RP[:, :num_left], self._holes_RP[:, :num_left]

    def note(self, mask_RC: torch.Tensor, num_past: int) -> None:
        """Note the mask of a call over all columns, of which `num_past` are of earlier ones."""
        self._holes_RP = self.holes(mask_RC, num_past)
        self._tokens_RP = mask_RC.bool()

    def holes(self, mask_RC: torch.Tensor, num_past: int) -> torch.Tensor:
        """Return which columns are holes: [R, C]."""
        _, past_RP = self._past(len(mask_RC), num_past)
        return torch.cat([past_RP, _holes(mask_RC[:, num_past:].bool())], 1)

    def forgotten(self, mask_RC: torch.Tensor, num_past: int) -> torch.Tensor:
        """Return how many of its newest tokens each row leaves out of its mask: [R].

        Raises:
            ShapeError: the mask has other tokens in the columns of earlier calls than these had.
        """
        tokens_RP, _ = self._past(len(mask_RC), num_past)
        past_RP = mask_RC[:, :num_past].bool()
        left_out_RP, is_before_token_RP = tokens_RP & ~past_RP, _is_before(past_RP)
        wrong_RP = (past_RP & ~tokens_RP) | (left_out_RP & is_before_token_RP)
        if wrong_RP.any():
            row, column = wrong_RP.nonzero()[0].tolist()
            value = int(past_RP[row, column])
            message = f"{_INPUT} has {value} for row {row}, column {column}, but had {1 - value} in an earlier call."
            hint = "Pass the earlier mask, extended by the new columns; only the newest tokens can be left out."
            raise ShapeError(message, hint=hint, input=_INPUT, row=row, column=column, value=value)
        return left_out_RP.sum(1)

    def check_holes(self, mask_RC: torch.Tensor, num_past: int, reach: Reach | None, states: Sequence[str]) -> None:
        """Check that no hole makes a difference to the new tokens.

        Args:
            mask_RC: the mask over all columns.
            num_past: columns of earlier calls.
            reach: what layers see; None for everything.
            states: names of states that every column changes in transformers, and every token here.
        """
        if reach is None and not states:
            return
        holes_RC = self.holes(mask_RC, num_past)
        for row in holes_RC.any(1).nonzero().flatten().tolist():
            tokens_C = mask_RC[row].bool()
            places_N = ((tokens_C | holes_RC[row]).cumsum(0) - 1)[tokens_C]
            new_N = tokens_C.nonzero().flatten() >= num_past
            differs_N = torch.ones_like(new_N) if reach is None or states else ~reach.same(places_N)
            if (differs_N & new_N).any():
                raise _hole(row, int(holes_RC[row].nonzero()[0]), reach, states)

    def _past(self, num_rows: int, num_past: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens and holes of earlier columns; a column without a noted mask holds a token."""
        tokens_RP, holes_RP = self._tokens_RP[:, :num_past], self._holes_RP[:, :num_past]
        if not num_past or not len(tokens_RP):
            return torch.ones(num_rows, num_past, dtype=torch.bool), torch.zeros(num_rows, num_past, dtype=torch.bool)
        more = (0, num_past - tokens_RP.shape[1])
        return torch.nn.functional.pad(tokens_RP, more, value=True), torch.nn.functional.pad(holes_RP, more)


def _holes(mask_RT: torch.Tensor) -> torch.Tensor:
    """Columns of a call that are between two of its tokens, and have none."""
    return ~mask_RT & _is_before(mask_RT) & _is_before(mask_RT.flip(1)).flip(1)


def _is_before(mask_RT: torch.Tensor) -> torch.Tensor:
    """Columns with a token at them or behind."""
    return mask_RT.flip(1).cumsum(1).flip(1) > 0


def _hole(row: int, column: int, reach: Reach | None, states: Sequence[str]) -> ShapeError:
    windows = [] if reach is None else [*reach.windows, *([reach.chunk] if reach.chunk is not None else [])]
    if states:
        reason = f"every column changes {', '.join(states)} in transformers, and every token does here"
    elif windows:
        reason = f"the window of {', '.join(map(str, windows))} counts columns in transformers, and tokens here"
    else:
        reason = "ALiBi counts columns in transformers, and tokens here"
    message = f"{_INPUT} has 0 between two tokens in row {row}, column {column}, but {reason}."
    hint = "Remove such columns from input_ids and the mask; padding may be on either side."
    details = {"input": _INPUT, "row": row, "column": column, "windows": windows, "states": list(states)}
    return ShapeError(message, hint=hint, **details)
