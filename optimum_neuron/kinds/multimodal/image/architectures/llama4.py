"""Llama 4: a vision transformer with rotary positions whose patches are joined in squares; an image is cut into tiles.

Shape legend: N images, P patches, K heads, H head width.
"""

from __future__ import annotations

from typing import Any

import torch

from .....base.transformers_types import PreTrainedConfig, PreTrainedModel
from .....upstream.contract import replaced
from .....upstream.modeling_files import LLAMA4_VISION_ROTATION
from .architecture import Architecture, trained_size_only, with_whole


def _features(model: PreTrainedModel, pixels_NCHW: torch.Tensor) -> torch.Tensor:
    from transformers.models.llama4 import modeling_llama4

    with replaced(modeling_llama4, {LLAMA4_VISION_ROTATION.name: _rotated}):
        hidden = model.vision_model(pixels_NCHW, return_dict=True).last_hidden_state
    return model.multi_modal_projector(hidden)


def _with_real_angles(model: PreTrainedModel) -> None:
    """Keep cosines and sines [P, 1, H / 2, 2] of positions: the chip has no complex numbers."""
    rotary = model.vision_model.rotary_embedding
    rotary.freqs_ci = torch.view_as_real(rotary.freqs_ci)


def _rotated(query: torch.Tensor, key: torch.Tensor, freqs_ci: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate pairs of channels of queries and keys [N, P, K, H] by real angles, in float32."""
    cos, sin = freqs_ci.unbind(-1)

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2).type_as(x)

    return rotate(query), rotate(key)


def _expected(model: PreTrainedModel, outputs: Any) -> torch.Tensor:
    """transformers projects features where it inserts them."""
    return model.multi_modal_projector(outputs.last_hidden_state)


def _image_tokens(config: PreTrainedConfig, image_size: int) -> int:
    vision = config.vision_config
    return round((image_size // vision.patch_size) ** 2 * vision.pixel_shuffle_ratio**2)


ARCHITECTURE = Architecture(
    model_types=("llama4",),
    encoder=("vision_model", "multi_modal_projector"),
    text="language_model.model",
    head="language_model.lm_head",
    features=_features,
    expected=_expected,
    image_tokens=_image_tokens,
    problem=trained_size_only,
    tiles=lambda settings: with_whole(settings, settings.get("max_patches", 16)),
    prepare=_with_real_angles,
)
