"""Pixels to features: transformers' own vision modules, called without what depends on the pixels' values.

transformers drops padding images and splits results by row while it runs; here a graph takes a fixed number of images,
and who calls it drops and splits.

Shape legend: N images, C channels, H height, W width, L tokens of an image, D hidden of the decoder.
"""

from __future__ import annotations

from typing import Any

import torch


def shuffled_features(model: Any, pixels_NCHW: torch.Tensor, mask_NHW: torch.Tensor) -> torch.Tensor:
    """Features [N, L, D] of Idefics3 and SmolVLM; patches without any real pixel are not attended to."""
    vision, connector = model.model.vision_model, model.model.connector
    patch = vision.patch_size
    real = mask_NHW.unflatten(2, (-1, patch)).unflatten(1, (-1, patch)).sum((2, 4)) > 0
    hidden = vision(pixel_values=pixels_NCHW, patch_attention_mask=real).last_hidden_state
    return connector(hidden)


def selected_features(model: Any, pixels_NCHW: torch.Tensor) -> torch.Tensor:
    """Features [N, L, D] of LLaVA: hidden states of the layers that its configuration selects, projected."""
    tower, config = model.model.vision_tower, model.config
    hidden = tower.embeddings(pixels_NCHW)
    if hasattr(tower, "pre_layrnorm"):
        hidden = tower.pre_layrnorm(hidden)
    states = [hidden]
    for layer in tower.encoder.layers:
        hidden = layer(hidden, None)
        states.append(hidden)
    # Layers above the deepest selected one were taken away: the last state is that one's, however short the stack is.
    picked = [states[-1] if index == max(feature_layers(config)) else states[index] for index in feature_layers(config)]
    if config.vision_feature_select_strategy == "default":
        picked = [state[:, 1:] for state in picked]
    return model.model.multi_modal_projector(torch.cat(picked, dim=-1))


def feature_layers(config: Any) -> list[int]:
    """How many layers of LLaVA's vision tower each selected hidden state has behind it."""
    selected, num_layers = config.vision_feature_layer, config.vision_config.num_hidden_layers
    layers = [selected] if isinstance(selected, int) else selected
    return [layer if layer >= 0 else num_layers + 1 + layer for layer in layers]


def drop_unused_layers(model: Any) -> None:
    """Take away the layers of LLaVA's vision tower that no selected hidden state has behind it."""
    tower = model.model.vision_tower
    tower.encoder.layers = tower.encoder.layers[: max(feature_layers(model.config))]
