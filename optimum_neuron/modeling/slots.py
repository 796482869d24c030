"""Sequences of a compiled decoder that begin and end one by one: each has a slot, and a position of its own.

This is the protocol of servers that bring their own scheduler: prompts go to some slots while the others keep their
sequences, and a step names the slots and the positions of its tokens.

    slots = SequenceSlots(model, num_slots=4)
    logits_R1V = slots([2], prompt_1T, torch.arange(7)[None])
    logits_RTV = slots([0, 2], tokens_R1, torch.tensor([[12], [7]]))

Shape legend: R rows of a call, T tokens, S slots, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..engine import Group, Results, Sequences, make_sequences
from ..errors import ShapeError
from ..upstream.cache_argument import CACHE
from .causal_lm import NeuronModelForCausalLM


class SequenceSlots:
    """The sequences of a model."""

    def __init__(self, model: NeuronModelForCausalLM, num_slots: int) -> None:
        self._model, self.num_slots = model, num_slots
        self.reset()

    def reset(self) -> None:
        """Forget all sequences."""
        self._sequences: Sequences | None = None
        self.lengths_S = torch.zeros(self.num_slots, dtype=torch.long)
        """Tokens of each slot."""
        self._adapters: dict[int, str | None] = {}
        """The adapter that each slot's prompt was read with."""

    def __call__(
        self,
        slots: Sequence[int],
        ids_RT: torch.Tensor,
        positions_RT: torch.Tensor,
        mask: torch.Tensor | None = None,
        adapter_names: Sequence[str] | None = None,
    ) -> torch.Tensor:
        """Begin sequences where positions count from 0, or add tokens to them; return the logits of `begin`, `extend`.

        Args:
            slots: the slot of each row.
            ids_RT: the tokens.
            positions_RT: their positions.
            mask: 1 for tokens of prompts; None: derived from the positions.
            adapter_names: LoRA adapter of each prompt; None: the active one.

        Raises:
            ShapeError: positions do not fit the tokens, or what a slot holds.
        """
        num_tokens = ids_RT.shape[1]
        if positions_RT.shape != ids_RT.shape:
            raise ShapeError(
                f"There are positions {list(positions_RT.shape)} for tokens {list(ids_RT.shape)}.",
                hint="Pass a position for each token.",
                positions=list(positions_RT.shape),
                ids=list(ids_RT.shape),
            )
        begins_R = (positions_RT == 0).any(1)
        if not bool(begins_R.any()):
            self._check_adapters(slots, adapter_names)
            return self.extend(slots, ids_RT, positions_RT[:, 0])
        if not bool(begins_R.all()):
            raise ShapeError(
                "Some rows begin at position 0, and others do not.",
                hint="Pass prompts and tokens of later positions in calls of their own.",
                rows=begins_R.tolist(),
            )
        counted_RT = (positions_RT == torch.arange(num_tokens)).long().cumprod(1)
        return self.begin(slots, ids_RT, counted_RT if mask is None else mask[:, :num_tokens], adapter_names)

    def begin(
        self,
        slots: Sequence[int],
        ids_RT: torch.Tensor,
        mask_RT: torch.Tensor,
        adapter_names: Sequence[str] | None = None,
    ) -> torch.Tensor:
        """Begin sequences; return logits [R, 1, V] after the prompts.

        Args:
            slots: the slot of each row; what it held is forgotten.
            ids_RT: prompts.
            mask_RT: 1 for their tokens, with padding on either side.
            adapter_names: LoRA adapter of each row; None: the active one.
        """
        self._check(slots, len(ids_RT))
        output = self._model(
            ids_RT, attention_mask=mask_RT, use_cache=True, logits_to_keep=1, adapter_names=adapter_names
        )
        begun = output[CACHE].sequences
        if list(slots) == list(range(self.num_slots)):
            self._sequences = begun
        else:
            if self._sequences is None:
                self._sequences = make_sequences(self._model.loaded, self._model._signature)
                self._sequences.resize(self.num_slots)
            for row, slot in enumerate(slots):
                self._sequences.adopt(slot, begun, row)
        self.lengths_S[list(slots)] = mask_RT.long().sum(1)
        self._adapters |= zip(slots, [None] * len(slots) if adapter_names is None else adapter_names, strict=True)
        return output.logits

    def extend(self, slots: Sequence[int], ids_RT: torch.Tensor, positions_R: torch.Tensor) -> torch.Tensor:
        """Add tokens to sequences; return logits [R, T, V] after each. Later tokens of a slot are forgotten.

        Args:
            slots: the slot of each row.
            ids_RT: the tokens.
            positions_R: position of the first of them.
        """
        num_tokens = ids_RT.shape[1]
        self._check(slots, len(ids_RT))
        self._check_positions(slots, positions_R, num_tokens, self._model.sequence_length)
        assert self._sequences is not None, "a prompt came before"
        rows = list(slots)
        first_S, counts_S = self.lengths_S.clone(), torch.zeros_like(self.lengths_S)
        first_S[rows], counts_S[rows] = positions_R.long(), num_tokens
        ids_ST = ids_RT.new_zeros(self.num_slots, num_tokens)
        ids_ST[rows] = ids_RT
        decoder = self._model._decoder

        def run(group: Group) -> Results:
            ids, first, counts = group.take(ids_ST), group.take(first_S), group.take(counts_S)
            if num_tokens == 1:
                return decoder.decode(group, ids, first[:, None].clamp(max=decoder.num_slots - 1), counts)
            return decoder.extend(group, ids, first, counts)

        results = self._sequences.run(run)
        self.lengths_S[rows] = positions_R.long() + num_tokens
        return results["logits"][rows]

    def _check_positions(self, slots: Sequence[int], positions_R: torch.Tensor, num_tokens: int, most: int) -> None:
        """Check that new tokens follow what slots hold, and that there is room for them."""
        for slot, position in zip(slots, positions_R.tolist(), strict=True):
            held = int(self.lengths_S[slot])
            if not 0 < position <= held or position + num_tokens > most:
                message = f"Sequence {slot} holds {held} tokens of at most {most}, and new ones are at {position}."
                hint = "Continue behind its tokens, or begin at 0 with the whole prompt."
                raise ShapeError(message, hint=hint, slot=slot, position=position, num_cached=held, most=most)

    def _check_adapters(self, slots: Sequence[int], names: Sequence[str] | None) -> None:
        """Check that sequences go on with the adapters of their prompts."""
        held = [self._adapters.get(slot) for slot in slots]
        if names is not None and list(names) != held:
            raise ShapeError(
                f"New tokens name the adapters {list(names)}, but the prompts of these sequences had {held}.",
                hint="Pass the adapters of the prompts, or begin at 0 with whole prompts.",
                adapters=list(names),
                held=held,
            )

    def _check(self, slots: Sequence[int], num_rows: int) -> None:
        """Check that each row has a slot of its own."""
        if len(slots) != num_rows or len(set(slots)) != num_rows or any(not 0 <= s < self.num_slots for s in slots):
            raise ShapeError(
                f"The sequences {list(slots)} are not {num_rows} different ones of {self.num_slots}.",
                hint=f"Pass a different number below {self.num_slots} for each row.",
                slots=list(slots),
                num_rows=num_rows,
                num_slots=self.num_slots,
            )
