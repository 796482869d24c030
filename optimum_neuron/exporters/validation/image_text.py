"""Scenarios of vision-language models: images, prompts with images for each bucket, and those of decoders."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ...engine import Forward, PromptImages, Signature, image_index, plan_packing
from ...runtime import Copies
from .decoder import DecoderScenarios
from .scenarios import SEED, Recorder, Results, Scenario

NUM_IMAGES = 2
"""Images of a prompt that is compared, where the prompt and the model hold them."""


class ImageTextScenarios(DecoderScenarios):
    """Scenarios of one program; images of Idefics are nested: they come in rows."""

    def __init__(
        self,
        recorder: Recorder,
        signature: Signature,
        reference: Any,
        *,
        is_nested: bool,
        image_tokens: int,
        max_num_images: int,
    ) -> None:
        super().__init__(recorder, signature, reference)
        self._is_nested, self._image_tokens = is_nested, image_tokens
        self._encode = Forward(Copies([recorder]), "encode_image", signature["encode_image"])  # type: ignore[list-item]
        (encode,) = recorder.program.by_size("encode_image").values()
        pixels = recorder.program.graphs[encode].inputs["pixel_values"].shape[1:]
        shape = (self._num_rows, min(NUM_IMAGES, max_num_images), *pixels)
        self._pixels = torch.randn(shape, generator=torch.Generator().manual_seed(SEED))

    def __iter__(self) -> Iterator[Scenario]:
        yield Scenario(name="images", run=self._features, reference=self._expected_features)
        for bucket in self._decoder.prefill_buckets:
            # Shorter buckets hold no image: they are compared without.
            if num_images := min(self._pixels.shape[1], (bucket - 2) // self._image_tokens):
                yield Scenario(
                    name=f"prompts with {num_images} image{'s' * (num_images > 1)}, bucket {bucket}",
                    run=functools.partial(self._with_images, num_images),
                    reference=functools.partial(self._expected_with_images, num_images),
                    num_equal=num_images * self._image_tokens + 2,
                )
        yield from super().__iter__()

    def _features(self) -> Results:
        return {"features": self._encode({"pixel_values": self._pixels.flatten(0, 1)})["image_features"].flatten(0, 1)}

    def _expected_features(self) -> Results:
        with torch.no_grad():
            outputs = self._reference.get_image_features(**self._images(self._pixels.shape[1]))
        return {"features": torch.cat(list(outputs.pooler_output)).float()}

    def _images(self, num_images: int) -> dict[str, torch.Tensor]:
        """Reference output for the first images of each row."""
        pixels = self._pixels[:, :num_images]
        return {"pixel_values": pixels if self._is_nested else pixels.flatten(0, 1)}

    def _prompt(self, num_images: int) -> torch.Tensor:
        """A token, images, a token, for each row."""
        image_token = self._reference.config.image_token_id
        ids = torch.full((self._num_rows, num_images * self._image_tokens + 2), image_token)
        vocabulary = self._reference.config.get_text_config(decoder=True).vocab_size
        generator = torch.Generator().manual_seed(SEED)
        text = torch.randint(vocabulary - 1, (self._num_rows, 2), generator=generator)
        ids[:, [0, -1]] = text + (text >= image_token)  # any token but that of images
        return ids

    def _with_images(self, num_images: int) -> Results:
        ids = self._prompt(num_images)
        pixels = self._pixels[:, :num_images].flatten(0, 1)
        features = self._encode({"pixel_values": pixels})["image_features"].unflatten(0, (self._num_rows, num_images))
        images = PromptImages(
            index_RT=image_index(ids, self._reference.config.image_token_id), features_RFD=features.flatten(1, 2)
        )
        packing = plan_packing(torch.ones_like(ids), 0)
        return {
            name: self._decoder(ids, packing, self._sequences(), num_past=0, num_logits=num_logits, images=images)
            for name, num_logits in (("prompt", 0), ("last prompt token", 1))
        }

    def _expected_with_images(self, num_images: int) -> Results:
        with torch.no_grad():
            logits = self._reference(self._prompt(num_images), **self._images(num_images)).logits.float()
        return {"prompt": logits, "last prompt token": logits[:, -1:]}
