"""The graphs of a model whose prompts have images or audio, as modules.

encode_image, encode_audio  pixels or spectrograms: features
prefill_<n> and score_<n>   as in `kinds/decoder/plan.py`; features stand for the image or audio tokens of a prompt

Shape legend: B batch, T tokens, N images or audios, F features of a row, D hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...models import Prompt
from ...models.generic import GenericDecoder
from ..decoder import Entry
from .architecture import FeatureArchitecture


class EncoderEntry(nn.Module):
    """The encoder of a wrapped model, which returns features in float32."""

    def __init__(self, model: GenericDecoder, features: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.model = model
        self._features = features

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Features [N, L, D] of images or audios."""
        return self._features(self.model.model, *inputs).float()


class PromptEntry(Entry):
    """A decoder that reads features in place of image or audio tokens."""

    def __init__(self, *arguments: Any, architecture: FeatureArchitecture, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._architecture = architecture

    def prompt_options(self, input_ids_BT: torch.Tensor, inputs: list[torch.Tensor]) -> dict[str, Any]:
        """What stands for the tokens; the inputs are where features go, the features, and what the architecture has.

        The first is 0 for a token of text and 1 + i for the row's feature i, the features are [B, F, D].
        """
        index_BT, features_BFD, *more = inputs
        embeds_BTD = self.model.embed(input_ids_BT)
        place = (index_BT - 1).clamp(min=0)[:, :, None].expand(-1, -1, features_BFD.shape[-1])
        is_placed_BT1 = index_BT[:, :, None] > 0
        # Behind the features of each token are those for the first layers.
        placed_BTD, *added = features_BFD.gather(1, place).split(embeds_BTD.shape[-1], -1)
        row = self._architecture
        prompt = Prompt(
            embeds_BTD=torch.where(is_placed_BT1, placed_BTD.to(embeds_BTD.dtype), embeds_BTD),
            blocks_BT=None if row.blocks is None else more.pop(0),
            blocks_pass_windows=row.blocks_pass_windows,
            positions_BTA=None if row.positions is None else more.pop(0),
            offset_B1=None if row.positions is None else more.pop(0),
            added=tuple(torch.where(is_placed_BT1, part_BTD, 0.0) for part_BTD in added),
        )
        return {"prompt": prompt}
