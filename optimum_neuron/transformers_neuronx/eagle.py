"""EAGLE drafts of `transformers_neuronx`: one layer, which reads hidden states of its target and is compiled for it.

    decoder = FusedSpeculativeDecoder(draft, target, 4)
    decoder.to_neuron()

The target picks every token, so results are its own.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor

from ..errors import ConfigError
from ..modeling import EagleDraft
from ..options.spelling import spelled
from ..sources import find_folder
from .model import NeuronModelBase
from .options import KEYWORDS
from .positions import left_mask
from .sampling import Sampling


def is_eagle_pair(draft: NeuronModelBase, target: NeuronModelBase) -> bool:
    """Return whether a draft is an EAGLE draft of a target, after a check that both say so."""
    flags = {
        "is_eagle_draft": draft.neuron_config.is_eagle_draft,
        "is_eagle_target": target.neuron_config.is_eagle_target,
    }
    if len(set(flags.values())) > 1:
        missing, named = sorted(flags, key=flags.__getitem__)
        message = f"One model has {named}=True, and the other {missing}=False."
        raise ConfigError(message, hint=f"Pass NeuronConfig({missing}=True) too, or neither.", option=missing)
    return all(flags.values())


def load_eagle(draft: NeuronModelBase, target: NeuronModelBase, num_candidates: int) -> EagleDraft:
    """Compile an EAGLE draft for its compiled target."""
    assert draft.checkpoint is not None, "its to_neuron checks it"
    with spelled(KEYWORDS):
        return EagleDraft.from_pretrained(find_folder(draft.checkpoint), target.compiled, num_candidates)


class _Drawn(LogitsProcessor):
    """Leaves only the token that is drawn."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores of which one in each row is finite."""
        tokens_R = self._sampling.draw(input_ids, scores)
        return torch.full_like(scores, -torch.inf).scatter(1, tokens_R[:, None], 0.0)


def eagle_answer(
    target: NeuronModelBase,
    draft: EagleDraft,
    ids_1C: torch.Tensor,
    start: int,
    sampling: Sampling | None,
    **options: Any,
) -> torch.Tensor:
    """Return one prompt with its answer.

    Args:
        target: the model that checks.
        draft: what proposes.
        ids_1C: the prompt.
        start: number of padding tokens on its left.
        sampling: how tokens are drawn; None: the likeliest.
        **options: settings of transformers' `generate`.
    """
    model, mask = target.compiled, left_mask(ids_1C, torch.tensor([start]))
    drawn = [] if sampling is None else [_Drawn(sampling)]
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        tokens = model.generate(
            ids_1C, attention_mask=mask, assistant_model=draft, do_sample=False, logits_processor=drawn, **options
        )
    finally:
        model.generation_config = own
    return tokens[0]
