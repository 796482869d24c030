"""Gemma 3: a SigLIP tower whose patches are averaged; tokens of an image see each other in both directions."""

from __future__ import annotations

import torch

from .architecture import Architecture, pooled_features, trained_size_only


def _blocks(types_RT: torch.Tensor) -> torch.Tensor:
    """Each run of image tokens, of type 1, is a block."""
    is_image = types_RT == 1
    is_first = is_image & ~torch.nn.functional.pad(is_image, (1, 0))[:, :-1]
    return is_first.long().cumsum(1) * is_image


ARCHITECTURE = Architecture(
    model_types=("gemma3",),
    encoder=("model.vision_tower", "model.multi_modal_projector"),
    features=pooled_features,
    image_tokens=lambda config, image_size: config.mm_tokens_per_image,
    problem=trained_size_only,
    inputs=("token_type_ids",),
    blocks=_blocks,
    towers=("siglip_vision_model",),
)
