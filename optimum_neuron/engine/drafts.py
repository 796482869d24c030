"""Drafts propose how a sequence continues; a check of the decoder decides what stays.

A draft may read hidden states of the decoder: those of all tokens that are new since it proposed last, in the order of
the tokens. `SequenceDraft` keeps them until then.

Shape legend: C columns of tokens so far, N tokens with new hidden states, T tokens of a call, F features of a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from .signature import is_of_layer

if TYPE_CHECKING:
    import torch


@runtime_checkable
class Draft(Protocol):
    """Proposes how a sequence continues; `generate` takes one as `assistant_model`."""

    name: str
    reads: tuple[str, ...] = ()
    """Results of the decoder that it reads, such as "last_hidden_state"."""

    def begin(self) -> Draft:
        """Return the draft of a new sequence; one that keeps nothing between calls is its own."""
        return self

    def propose(self, ids_1C: torch.Tensor, hidden_NF: torch.Tensor | None) -> list[int]:
        """Return candidates for the next tokens.

        Args:
            ids_1C: the sequence.
            hidden_NF: what `reads` names, side by side, of the tokens before the newest one, as far as they are new
                since the last call; None for a draft that reads nothing.
        """
        ...


class SequenceDraft:
    """A draft at work on one sequence, with the hidden states that it has not read."""

    def __init__(self, draft: Draft) -> None:
        """Begin a sequence."""
        self._draft = draft.begin()
        self._parts: list[torch.Tensor] = []

    @property
    def reads_prompt(self) -> bool:
        """Whether it reads hidden states of every token, also of the prompt."""
        return any(map(is_of_layer, self._draft.reads))

    def keep(self, results: Mapping[str, torch.Tensor], num_tokens: int | None = None) -> None:
        """Note results [T, F] of a call; of its first `num_tokens` tokens, if that is a number."""
        import torch

        if self._draft.reads:
            self._parts.append(torch.cat([results[name][:num_tokens] for name in self._draft.reads], 1))

    def propose(self, ids_1C: torch.Tensor, room: int) -> list[int]:
        """Return at most `room` candidates for the tokens behind a sequence."""
        import torch

        if room < 1:
            return []
        parts, self._parts = self._parts, []
        return self._draft.propose(ids_1C, torch.cat(parts) if parts else None)[:room]
