"""PaliGemma: a SigLIP tower; all tokens of a prompt see each other, those of an answer see what is before them."""

from __future__ import annotations

import torch

from .....base.transformers_types import PreTrainedConfig
from .architecture import Architecture, pooled_features, trained_size_only


def _blocks(types_RT: torch.Tensor) -> torch.Tensor:
    """The prompt, of type 0, is a block; an answer to learn from is of type 1."""
    return (types_RT == 0).long()


def _image_tokens(config: PreTrainedConfig, image_size: int) -> int:
    return (image_size // config.vision_config.patch_size) ** 2


ARCHITECTURE = Architecture(
    model_types=("paligemma",),
    encoder=("model.vision_tower", "model.multi_modal_projector"),
    features=pooled_features,
    image_tokens=_image_tokens,
    problem=trained_size_only,
    inputs=("token_type_ids",),
    blocks=_blocks,
    blocks_pass_windows=True,
    answer_type=1,
    towers=("siglip_vision_model",),
)
