"""Compare a compiled model of images and text with the original in float32: features, prompts, decode steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from ..validate import SEED, OutputError, compare, default_tolerance, require_agreement, validate_decoder
from .architectures import Architecture
from .configuration import NeuronImageTextConfig
from .entry import ENCODE
from .images import encode_images, image_index

if TYPE_CHECKING:
    from ...runtime.loaded import LoadedProgram

NUM_IMAGES = 2
"""Images of a prompt that is compared, where the prompt and the model hold them."""


def validate_image_text(
    loaded: LoadedProgram,
    reference: Any,
    row: Architecture,
    image_tokens: int,
    config: NeuronImageTextConfig,
    *,
    atol: float | None = None,
) -> list[OutputError]:
    """Run random images and prompts, with images and without, through the compiled program and the original.

    Args:
        loaded: the compiled program with the original's weights.
        reference: the transformers model in float32.
        row: what is known of the architecture.
        image_tokens: tokens that stand for an image.
        config: complete configuration.
        atol: absolute tolerance; None derives it from the arithmetic.

    Raises:
        ValidationError: a result is past its tolerance; its statistics are in the message.
    """
    assert config.prefill_buckets is not None and config.max_num_images is not None, "resolved configuration"
    images = _Images(loaded, reference, config, is_nested=row.is_nested)
    tolerance = _tolerance(config, images.original, atol)
    errors = [compare(f"{ENCODE}.image_features", images.features.flatten(0, 2), images.original, tolerance=tolerance)]
    for bucket in config.prefill_buckets:
        # Shorter buckets hold no image: they are compared without, as all are.
        if num_images := min(images.num_images, (bucket - 2) // image_tokens):
            errors += _compared(loaded, reference, config, bucket, images, num_images, atol)
    require_agreement(errors, lambda failed: f"the first is {failed[0].output}")
    return errors + validate_decoder(
        loaded, reference, config, atol=atol, prompt_inputs=lambda bucket: _no_images(loaded, bucket)
    )


class _Images:
    """Random images of each row, their features [B, N, L, D], and the original's [B * N * L, D]."""

    def __init__(
        self, loaded: LoadedProgram, reference: Any, config: NeuronImageTextConfig, *, is_nested: bool
    ) -> None:
        assert config.max_num_images is not None, "resolved configuration"
        self.num_images, self._is_nested = min(NUM_IMAGES, config.max_num_images), is_nested
        shape = (config.batch_size, self.num_images, *loaded.program.graphs[ENCODE].inputs["pixel_values"].shape[1:])
        self._pixels = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))
        flat = self._pixels.flatten(0, 1)
        mask = [torch.ones_like(flat[:, 0], dtype=torch.int64)] if is_nested else []
        self.features = encode_images(loaded, config, [flat, *mask]).unflatten(0, shape[:2])
        with torch.no_grad():
            outputs = reference.get_image_features(**self.given(self.num_images))
        self.original = torch.cat(list(outputs.pooler_output)).float()

    def given(self, num_images: int) -> dict[str, torch.Tensor]:
        """What the original takes for the first images of each row."""
        pixels = self._pixels[:, :num_images]
        return {"pixel_values": pixels if self._is_nested else pixels.flatten(0, 1)}


def _compared(
    loaded: LoadedProgram,
    reference: Any,
    config: NeuronImageTextConfig,
    bucket: int,
    images: _Images,
    num_images: int,
    atol: float | None,
) -> list[OutputError]:
    """One prompt: a token, images, a token."""
    generator = torch.Generator().manual_seed(SEED)
    batch, image_token = config.batch_size, reference.config.image_token_id
    features_BFD = images.features[:, :num_images].flatten(1, 2)
    num_features = features_BFD.shape[1]
    ids_BT = torch.full((batch, num_features + 2), image_token)
    vocabulary = reference.config.get_text_config(decoder=True).vocab_size
    text = torch.randint(vocabulary - 1, (batch, 2), generator=generator)
    ids_BT[:, [0, -1]] = text + (text >= image_token)  # any token but that of images
    with torch.no_grad():
        logits = reference(ids_BT, **images.given(num_images)).logits.float()
    padding = (0, bucket - ids_BT.shape[1])
    room = loaded.program.graphs[f"score_{bucket}"].inputs["image_features"].shape[1]
    inputs = [
        pad(ids_BT, padding),
        torch.arange(bucket).expand(batch, -1).contiguous(),
        pad(image_index(ids_BT, image_token), padding),
        pad(features_BFD, (0, 0, 0, room - num_features)),
    ]
    state = loaded.take_state()
    scored = loaded.run(f"score_{bucket}", inputs, state)["logits"][:, : ids_BT.shape[1]]
    last = torch.full((batch,), ids_BT.shape[1] - 1)
    filled = loaded.run(f"prefill_{bucket}", [*inputs, last], state)["logits"]
    loaded.give_back(state)
    tolerance, shown = _tolerance(config, logits, atol), f"with {num_images} image{'s' * (num_images > 1)}"
    return [
        compare(f"score_{bucket}.logits {shown}", scored, logits, tolerance=tolerance),
        compare(f"prefill_{bucket}.logits {shown}", filled, logits[:, -1:], tolerance=tolerance),
    ]


def _no_images(loaded: LoadedProgram, bucket: int) -> list[torch.Tensor]:
    """What a graph of prompts takes where they have no images."""
    inputs = loaded.program.graphs[f"score_{bucket}"].inputs
    return [
        torch.zeros(inputs[name].shape, dtype=getattr(torch, inputs[name].dtype))
        for name in ("image_index", "image_features")
    ]


def _tolerance(config: NeuronImageTextConfig, original: torch.Tensor, atol: float | None) -> float:
    return default_tolerance(config, original.abs().max().item()) if atol is None else atol
