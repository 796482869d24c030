"""Images on their way into a compiled prompt: encoded, counted, and put where the prompt has their tokens.

It knows nothing of `generate`. Shape legend: N images, B rows, T columns, F features of a row, D hidden.
"""

from __future__ import annotations

import torch

from ...runtime.loaded import LoadedProgram
from .configuration import NeuronImageTextConfig
from .entry import ENCODE


def encode_images(loaded: LoadedProgram, config: NeuronImageTextConfig, pixels: list[torch.Tensor]) -> torch.Tensor:
    """Features [N, L, D] of any number of images.

    Args:
        loaded: the compiled program.
        config: complete configuration.
        pixels: `pixel_values` [N, C, H, W] and, where the architecture has one, their mask [N, H, W].
    """
    size, num_images, found = config.image_batch_size, pixels[0].shape[0], []
    dtype = getattr(torch, config.torch_dtype)
    state = loaded.take_state()
    try:
        for start in range(0, num_images, size):
            parts = [tensor[start : start + size] for tensor in pixels]
            missing = size - parts[0].shape[0]
            padded = [torch.cat((part, part[:1].expand(missing, *part.shape[1:]))) for part in parts]
            inputs = [padded[0].to(dtype), *(part.long() for part in padded[1:])]
            features = loaded.run(ENCODE, inputs, state)["image_features"]
            found.append(features[: size - missing])
    finally:
        loaded.give_back(state)
    return torch.cat(found)


def image_index(input_ids_BT: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """0 for a token of text, 1 + i for the i-th token of images in its row."""
    is_image_BT = input_ids_BT == image_token_id
    return is_image_BT.long().cumsum(1) * is_image_BT
