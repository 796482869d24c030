"""LLaVA: hidden states of a CLIP or SigLIP tower, of the layers that its configuration selects, projected.

Shape legend: N images, C channels, H height, W width, L tokens of an image, D hidden of the decoder.
"""

from __future__ import annotations

import torch

from .....base.transformers_types import PreTrainedConfig, PreTrainedModel
from .architecture import Architecture, trained_size_only


def _features(model: PreTrainedModel, pixels_NCHW: torch.Tensor) -> torch.Tensor:
    tower, config = model.model.vision_tower, model.config
    hidden = tower.embeddings(pixels_NCHW)
    if hasattr(tower, "pre_layrnorm"):
        hidden = tower.pre_layrnorm(hidden)
    states = [hidden]
    for layer in tower.encoder.layers:
        hidden = layer(hidden, None)
        states.append(hidden)
    # Layers above the deepest selected one were taken away: the last state is that one's, however short the stack is.
    layers = _feature_layers(config)
    picked = [states[-1] if index == max(layers) else states[index] for index in layers]
    if config.vision_feature_select_strategy == "default":
        picked = [state[:, 1:] for state in picked]
    return model.model.multi_modal_projector(torch.cat(picked, dim=-1))


def _feature_layers(config: PreTrainedConfig) -> list[int]:
    """How many layers of the vision tower each selected hidden state has behind it."""
    selected, num_layers = config.vision_feature_layer, config.vision_config.num_hidden_layers
    layers = [selected] if isinstance(selected, int) else selected
    return [layer if layer >= 0 else num_layers + 1 + layer for layer in layers]


def _drop_unused_layers(model: PreTrainedModel) -> None:
    """Take away the layers of the vision tower that no selected hidden state has behind it."""
    tower = model.model.vision_tower
    tower.encoder.layers = tower.encoder.layers[: max(_feature_layers(model.config))]


def _image_tokens(config: PreTrainedConfig, image_size: int) -> int:
    patches = (image_size // config.vision_config.patch_size) ** 2
    with_class = config.vision_config.model_type == "clip_vision_model"
    return patches + with_class - (config.vision_feature_select_strategy == "default")


ARCHITECTURE = Architecture(
    model_types=("llava",),
    encoder=("model.vision_tower", "model.multi_modal_projector"),
    features=_features,
    image_tokens=_image_tokens,
    problem=trained_size_only,
    towers=("clip_vision_model", "siglip_vision_model"),
    prepare=_drop_unused_layers,
    is_uniform=lambda config: len(_feature_layers(config)) == 1,
)
