"""Calls of a decoder by numbers of sequences: the cache of each sequence stays in the model, as in Optimum Neuron.

    logits = model(input_ids, position_ids=positions, seq_ids=rows, sampling_params=params)

A call whose positions begin with 0 reads prompts; later calls give the next token of each sequence.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from optimum_neuron.errors import ShapeError
from optimum_neuron.upstream.cache_argument import CACHE

from .generation.logits_process import FusedLogitsWarper

SAMPLING_COLUMNS = 3
"""top_k, top_p and temperature of each sequence."""


@dataclasses.dataclass
class _Group:
    """Sequences whose prompts were read by one call; they continue together."""

    rows: tuple[int, ...]
    cache: Any
    mask: torch.Tensor


class SequenceCalls:
    """Adds calls with `seq_ids` and `sampling_params` to a decoder."""

    original: Any
    _groups: dict[int, _Group] | None = None
    """The group of each sequence."""

    def reset(self) -> None:
        """Forget all sequences."""
        self._groups = None

    def _next(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        *,
        seq_ids: torch.Tensor | None = None,
        sampling_params: torch.Tensor | None = None,
        **inputs: Any,
    ) -> torch.Tensor:
        """Logits [batch, 1, vocabulary] of the token after each sequence; with `on_device_sampling`, that token.

        Args:
            input_ids: token IDs [batch, tokens].
            attention_mask: 1 for real tokens of prompts; None: positions tell.
            position_ids: positions of the tokens; None: of prompts.
            seq_ids: numbers of the sequences; None: counted from 0.
            sampling_params: top_k, top_p and temperature of each sequence, read with `on_device_sampling`.
            **inputs: further inputs of prompts, such as `pixel_values`.

        Raises:
            ShapeError: inputs have different numbers of sequences, a sequence has no prompt yet, or a call has some of
                the sequences that began together only.
        """
        num_rows = len(input_ids)
        rows = tuple(range(num_rows)) if seq_ids is None else tuple(seq_ids.flatten().tolist())
        if len(rows) != num_rows:
            message = f"input_ids has {num_rows} sequences, and seq_ids {len(rows)}."
            raise ShapeError(message, hint="Pass one number for each sequence.", input="seq_ids")
        is_prompt = position_ids is None or (input_ids.shape[1] > 1 and int(position_ids.min()) == 0)
        if is_prompt:
            mask = _real_tokens(input_ids, position_ids) if attention_mask is None else attention_mask
            logits = self._read(rows, input_ids, mask, inputs)
        else:
            logits = self._continue(rows, input_ids)
        if not self.neuron_config.on_device_sampling or sampling_params is None:
            return logits
        return _sampled(logits[:, -1], sampling_params)

    def _read(self, rows: tuple[int, ...], ids: torch.Tensor, mask: torch.Tensor, inputs: Any) -> torch.Tensor:
        """Read prompts, which begin these sequences anew."""
        result = self.original.forward(self, ids, attention_mask=mask, use_cache=True, **inputs)
        group = _Group(rows, getattr(result, CACHE), mask)
        groups = {row: one for row, one in (self._groups or {}).items() if not set(one.rows) & set(rows)}
        self._groups = groups | dict.fromkeys(rows, group)
        return of_last_token(result.logits, mask)

    def _continue(self, rows: tuple[int, ...], ids: torch.Tensor) -> torch.Tensor:
        """Add tokens to sequences, those of each group together."""
        known = self._groups or {}
        if new := sorted(set(rows) - known.keys()):
            message = f"There is no prompt of the sequences {new} yet."
            raise ShapeError(message, hint="Pass positions from 0 for a prompt first.", input="seq_ids", rows=new)
        results: dict[int, torch.Tensor] = {}
        for group in {id(known[row]): known[row] for row in rows}.values():
            if missing := sorted(set(group.rows) - set(rows)):
                message = f"The sequences {list(group.rows)} began together, but {missing} are not in this call."
                raise ShapeError(message, hint="Continue them together.", input="seq_ids", rows=missing)
            places = [rows.index(row) for row in group.rows]
            part = ids[places]
            group.mask = torch.cat((group.mask, torch.ones_like(part)), dim=1)
            options: dict[str, Any] = {CACHE: group.cache, "use_cache": True}
            result = self.original.forward(self, part, attention_mask=group.mask, **options)
            results |= dict(zip(group.rows, result.logits, strict=True))
        return torch.stack([results[row] for row in rows])


def of_last_token(values_BTX: torch.Tensor, mask_BT: torch.Tensor) -> torch.Tensor:
    """Return the values at the last token of each row: [B, 1, X]."""
    last_B = (mask_BT.long() * torch.arange(mask_BT.shape[1])).argmax(dim=1)
    return values_BTX[torch.arange(len(mask_BT)), last_B][:, None]


def _real_tokens(ids: torch.Tensor, positions: torch.Tensor | None) -> torch.Tensor:
    """The mask of prompts by their positions: real tokens count up from 0, and padding does not."""
    if positions is None:
        return torch.ones_like(ids)
    start = (positions == 0).long().argmax(dim=1, keepdim=True)
    expected = torch.arange(positions.shape[1]) - start
    counts = (positions == expected) & (expected >= 0)
    ended = (~counts & (expected >= 0)).long().cumsum(dim=1) > 0
    return (counts & ~ended).long()


def _sampled(logits: torch.Tensor, params: torch.Tensor) -> torch.Tensor:
    """A token for each sequence; top_k of 1 takes the likeliest.

    Raises:
        ShapeError: there are not three numbers for each sequence.
    """
    if tuple(params.shape) != (len(logits), SAMPLING_COLUMNS):
        message = f"sampling_params has shape {list(params.shape)}, but must be [{len(logits)}, {SAMPLING_COLUMNS}]."
        raise ShapeError(message, hint="Pass top_k, top_p and temperature of each sequence.", input="sampling_params")
    tokens = []
    for row, (top_k, top_p, temperature) in zip(logits, params.tolist(), strict=True):
        kept, ids = FusedLogitsWarper(temperature or 1.0, int(top_k), top_p)(row[None].float())
        choice = torch.multinomial(kept.softmax(dim=-1), 1) if top_k != 1 else kept.argmax(dim=-1, keepdim=True)
        tokens.append(choice if ids is None else ids.gather(-1, choice))
    return torch.cat(tokens).flatten()
