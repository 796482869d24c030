"""Sequences of the reference model on the CPU, which begin and end as those of a compiled model: `on_cpu=True`.

Every call reads whole sequences again: it is a reference, and keeps no cache.

Shape legend: R rows of a call, T new tokens, C columns, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ..errors import ConfigError
from ..modeling import SequenceSlots


class ReferenceSlots(SequenceSlots):
    """The sequences of a transformers model."""

    def __init__(self, reference: PreTrainedModel, num_slots: int, most: int) -> None:
        """Begin without sequences.

        Args:
            reference: the model.
            num_slots: sequences at once.
            most: tokens of a sequence.
        """
        self._reference, self.num_slots, self._most = reference, num_slots, most
        self.reset()

    def reset(self) -> None:
        """Forget all sequences."""
        self.lengths_S = torch.zeros(self.num_slots, dtype=torch.long)
        self._tokens: dict[int, torch.Tensor] = {}
        self._adapters = {}

    def begin(
        self,
        slots: Sequence[int],
        ids_RT: torch.Tensor,
        mask_RT: torch.Tensor,
        adapter_names: Sequence[str] | None = None,
    ) -> torch.Tensor:
        """Begin sequences; return logits [R, 1, V] after the prompts."""
        self._check(slots, len(ids_RT))
        if adapter_names is not None:
            message = "The reference model on the CPU has no adapters, and adapter_ids names some."
            raise ConfigError(message, hint="Leave adapter_ids out, or compile the model.", option="adapter_ids")
        for row, slot in enumerate(slots):
            self._tokens[slot] = ids_RT[row][mask_RT[row].bool()]
        return self._logits(slots, 1)

    def extend(self, slots: Sequence[int], ids_RT: torch.Tensor, positions_R: torch.Tensor) -> torch.Tensor:
        """Add tokens to sequences; return logits [R, T, V] after each."""
        num_tokens = ids_RT.shape[1]
        self._check(slots, len(ids_RT))
        self._check_positions(slots, positions_R, num_tokens, self._most)
        for row, (slot, position) in enumerate(zip(slots, positions_R.tolist(), strict=True)):
            self._tokens[slot] = torch.cat([self._tokens[slot][:position], ids_RT[row]])
        return self._logits(slots, num_tokens)

    @torch.no_grad()
    def _logits(self, slots: Sequence[int], num_tokens: int) -> torch.Tensor:
        """Read sequences, with padding behind them, which none of their tokens sees."""
        own = [self._tokens[slot] for slot in slots]
        lengths_R = torch.tensor([len(tokens) for tokens in own])
        self.lengths_S[list(slots)] = lengths_R
        ids_RC = pad_sequence(own, batch_first=True)
        mask_RC = (torch.arange(ids_RC.shape[1]) < lengths_R[:, None]).long()
        logits_RCV = self._reference(ids_RC, attention_mask=mask_RC, use_cache=False).logits.float()
        return torch.stack([row[n - num_tokens : n] for row, n in zip(logits_RCV, lengths_R.tolist(), strict=True)])
