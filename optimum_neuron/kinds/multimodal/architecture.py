"""What differs between architectures whose prompts have images or audio, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureArchitecture:
    """What is known of one or several model types, whatever their encoder reads."""

    model_types: tuple[str, ...]
    """Architectures that behave alike."""
    encoder: tuple[str, ...]
    """Modules that turn images or audio into features."""
    text: str = "model.language_model"
    """Module of the decoder, without its head."""
    head: str = "lm_head"
    """Module of the decoder's head."""
    features: Callable[..., Any]
    """Features [N, L, D] from a model and the encoder's inputs: calls the modules without what depends on values.

    transformers drops padding and splits results by row while it runs; here a graph takes a fixed number of images or
    audios, and who calls it drops and splits.
    """
    inputs: tuple[str, ...] = ()
    """What else the model's processor makes, beside token ids, their mask, and pixels or spectrograms."""
    blocks: Callable[[Any], Any] | None = None
    """Numbers of the blocks of tokens that see each other in both directions, from `token_type_ids`; 0 for no block."""
    blocks_pass_windows: bool = False
    """Whether tokens of a block see each other beyond the window of a layer too."""
    positions: Callable[..., Any] | None = None
    """Positions [R, T, A] in time, height, and width from token types, a mask of real tokens, grids of the images in
    their order, and a configuration; None where a token's position is its index."""
    axes: Callable[[Any], tuple[int, ...]] | None = None
    """Axis of these positions for each rotary frequency, from the configuration of the text model."""
    text_type: str | None = None
    """Model type whose decoder the text model is, but for its positions; None for its own."""
    num_added: Callable[[Any], int] = lambda config: 0
    """Features of the same width behind those of an image, which are added to the results of the first layers."""
    prepare: Callable[[Any], None] = lambda model: None
    """Changes the model before it is captured."""
    is_uniform: Callable[[Any], bool] = lambda config: True
    """Whether what follows the encoder's layers reads the last one only, so that few of them need be captured."""
