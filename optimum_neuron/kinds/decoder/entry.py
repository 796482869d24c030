"""A decoder called the way its graphs call it, and its capture."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch
from torch import nn

from ...compiler import Captured, Recapture, Role, capture, part_of
from ...models import Decoder, Family, RowAdapters
from ..base import MODEL
from .signature import with_tokens


class Entry(nn.Module):
    """A decoder called the way one graph calls it."""

    def __init__(
        self,
        decoder: nn.Module,
        *,
        num_slots: int | None,
        last_only: bool,
        counts_tokens: bool = False,
        adapters: RowAdapters | None = None,
        max_topk: int | None = None,
    ) -> None:
        super().__init__()
        self.model, self.adapters, self.max_topk = decoder, adapters, max_topk
        self.num_slots, self.last_only, self.counts_tokens = num_slots, last_only, counts_tokens
        self.adds_all = False

    def forward(self, input_ids_BT: torch.Tensor, positions_BT: torch.Tensor, *rest: object) -> Any:
        """Logits of the last, of all tokens, or of both; the last argument is the list of states."""
        *inputs, states = rest
        rows: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if self.adapters is not None:
            rows = self.adapters.chosen(self.model, inputs.pop(), input_ids_BT.shape[1])
        options: dict[str, Any] = {"num_new_B": inputs.pop(0)} if self.counts_tokens else {}
        options["last_index_B"] = inputs.pop() if self.last_only else None
        options |= {"adds_all": True} if self.adds_all else {}
        options |= self.prompt_options(input_ids_BT, inputs)
        with rows:
            results = self.model(input_ids_BT, positions_BT, states, num_slots=self.num_slots, **options)
        return results if self.max_topk is None else with_tokens(results, self.max_topk)

    def prompt_options(self, input_ids_BT: torch.Tensor, inputs: list[torch.Tensor]) -> dict[str, Any]:
        """Keywords that further inputs of prompts become; here there are none."""
        return {}


def graph_layers(family: Family) -> dict[str, str]:
    """Return the layers whose results graphs return too, by the name of the result."""
    return {name: f"{MODEL}.{path}" for name, path in family.layer_results.items()}


def known_kinds(decoder: nn.Module, adapters: RowAdapters | None) -> dict[str, tuple[int, ...]]:
    """Return the equal layers of a family's decoder as `capture` takes them; adapters may differ by layer."""
    kinds = getattr(decoder, "kinds", None) if adapters is None else None
    return {} if kinds is None else {f"{MODEL}.layers": kinds}


def capture_entry(entry: Entry, shorten: bool, **options: Any) -> Captured:
    """Capture a decoder the way one graph calls it."""
    # Further inputs of a prompt may be added behind some layers.
    kinds = known_kinds(entry.model, entry.adapters) if type(entry) is Entry else {}
    return capture(entry, shorten=shorten, kinds=kinds, **options)


class _Prompts:
    """Graphs of prompts of one length, of which one run of the model is captured."""

    def __init__(self, prefill: functools.partial[Captured]) -> None:
        self._prefill, self._outputs = prefill, prefill.keywords["outputs"]
        self._captured: dict[bool, Captured] = {}

    def capture(self, shorten: bool, *, name: str, role: Role) -> Captured:
        if shorten not in self._captured:
            outputs = tuple(f"{part}.{output}" for part in ("prefill", "score") for output in self._outputs)
            self._captured[shorten] = self._prefill(shorten, name=name, role=role, outputs=outputs)
        return part_of(
            self._captured[shorten],
            name=name,
            role=role,
            outputs={output: f"{role}.{output}" for output in self._outputs},
            without=() if role == "prefill" else ("last_index",),
        )


def prompt_captures(prefill: functools.partial[Captured], score: functools.partial[Captured]) -> list[Recapture]:
    """Return the captures of prompts with logits of the last and of all tokens, given those of each alone.

    They differ behind the last layer only, so a decoder that returns both is captured once for both.
    """
    entry = prefill.args[0]
    if not isinstance(entry.model, Decoder):
        return [prefill, score]
    entry.adds_all, prompts = True, _Prompts(prefill)
    return [
        functools.partial(prompts.capture, name=one.keywords["name"], role=one.keywords["role"])
        for one in (prefill, score)
    ]
