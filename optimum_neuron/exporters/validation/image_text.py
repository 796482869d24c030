"""Scenarios of vision-language models: images, prompts with images for each bucket, and those of decoders."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ...engine import Forward, PromptImages, Signature, image_index, plan_packing, position_offset
from ...runtime import Copies
from .decoder import Batch, DecoderScenarios
from .scenarios import SEED, Recorder, Results, Scenario

if TYPE_CHECKING:
    from ..image_text import Architecture

NUM_IMAGES = 2
"""Images of a prompt that is compared, where the prompt and the model hold them."""


class ImageTextScenarios(DecoderScenarios):
    """Scenarios of one program."""

    def __init__(
        self,
        recorder: Recorder,
        signature: Signature,
        reference: Any,
        *,
        architecture: Architecture,
        image_tokens: int,
        max_num_images: int,
    ) -> None:
        super().__init__(recorder, signature, reference)
        self._architecture, self._image_tokens = architecture, image_tokens
        self._encode = Forward(Copies([recorder]), "encode_image", signature["encode_image"])  # type: ignore[list-item]
        encoders = [recorder.program.graphs[name] for name in recorder.program.by_size("encode_image").values()]
        self._shapes = [graph.inputs["pixel_values"].shape[1:] for graph in encoders]
        self._num_images = min(NUM_IMAGES, max_num_images)

    def _of_shape(self, shape: Sequence[int], results: Callable[..., Results], *arguments: int) -> Results:
        """Results with images of a shape."""
        self._use_images(shape)
        return results(*arguments)

    def _use_images(self, shape: Sequence[int]) -> None:
        generator = torch.Generator().manual_seed(SEED)
        self._pixels = torch.randn((self._num_rows, self._num_images, *shape), generator=generator)
        side = math.isqrt(shape[0])
        self._grid = torch.tensor([1, side, side]) if self._architecture.layout == "patches" else None

    def __iter__(self) -> Iterator[Scenario]:
        for shape in self._shapes:
            yield Scenario(
                name="images" if len(self._shapes) == 1 else f"images of {shape[0]} patches",
                run=functools.partial(self._of_shape, shape, self._features),
                reference=functools.partial(self._of_shape, shape, self._expected_features),
            )
        for bucket in self._decoder.prefill_buckets:
            # Shorter buckets hold no image: they are compared without.
            if num_images := min(self._num_images, (bucket - 1) // (self._image_tokens + 1)):
                yield Scenario(
                    name=f"prompts with {num_images} image{'s' * (num_images > 1)}, bucket {bucket}",
                    run=functools.partial(self._of_shape, self._shapes[-1], self._with_images, num_images),
                    reference=functools.partial(
                        self._of_shape, self._shapes[-1], self._expected_with_images, num_images
                    ),
                    num_equal=num_images * (self._image_tokens + 1) + 1,
                )
        yield from super().__iter__()

    def _features(self) -> Results:
        return {"features": self._encoded(self._num_images).flatten(0, 2)}

    def _encoded(self, num_images: int) -> torch.Tensor:
        """Features [rows, images, L, D] of the first images of each row."""
        pixels = self._pixels[:, :num_images].flatten(0, 1)
        grids = {} if self._grid is None else {"image_grid_thw": self._grid.expand(len(pixels), -1)}
        features = self._encode({"pixel_values": pixels} | grids)["image_features"]
        return features.unflatten(0, (self._num_rows, num_images))

    def _expected_features(self) -> Results:
        with torch.no_grad():
            outputs = self._reference.get_image_features(**self._images(self._num_images))
        features = self._architecture.expected(self._reference, outputs)
        return {"features": torch.cat([part.reshape(-1, part.shape[-1]) for part in features]).float()}

    def _images(self, num_images: int) -> dict[str, torch.Tensor]:
        """Reference output for the first images of each row."""
        pixels = self._pixels[:, :num_images]
        if self._grid is not None:
            grids = self._grid.expand(pixels.shape[0] * num_images, -1)
            return {"pixel_values": pixels.flatten(0, 2), "image_grid_thw": grids}
        return {"pixel_values": pixels if self._architecture.layout == "rows" else pixels.flatten(0, 1)}

    def _no_images(self, mask: torch.Tensor) -> PromptImages:
        name = next(iter(self._program.by_size("score").values()))
        width = self._program.graphs[name].inputs["image_features"].shape[-1]
        features, blocks = torch.zeros(len(mask), 0, width), self._architecture.blocks
        types = torch.zeros_like(mask)
        return PromptImages(index_RT=types, features_RFD=features, blocks_RT=None if blocks is None else blocks(types))

    def _reference_options(self, batch: Batch) -> dict[str, torch.Tensor]:
        options = super()._reference_options(batch)
        if self._architecture.blocks is None:
            return options
        types = torch.zeros_like(batch.ids_RT)
        for row, length in enumerate(batch.lengths):
            types[row, length:] = self._architecture.answer_type or 0
        return options | {"token_type_ids": types}

    def _types(self, ids: torch.Tensor) -> torch.Tensor:
        """Token types: 1 for images."""
        return (ids == self._reference.config.image_token_id).long()

    def _prompt(self, num_images: int) -> torch.Tensor:
        """A token, and images with a token behind each, for each row."""
        image_token = self._reference.config.image_token_id
        ids = torch.full((self._num_rows, num_images * (self._image_tokens + 1) + 1), image_token)
        vocabulary = self._reference.config.get_text_config(decoder=True).vocab_size
        generator = torch.Generator().manual_seed(SEED)
        text = torch.randint(vocabulary - 1, (self._num_rows, num_images + 1), generator=generator)
        ids[:, :: self._image_tokens + 1] = text + (text >= image_token)  # any token but that of images
        return ids

    def _with_images(self, num_images: int) -> Results:
        ids = self._prompt(num_images)
        config, blocks, positions = self._reference.config, self._architecture.blocks, None
        if self._grid is not None and self._architecture.positions is not None:
            grids = self._grid.expand(self._num_rows * num_images, -1)
            positions = self._architecture.positions(self._types(ids), torch.ones_like(ids), grids, config)
        images = PromptImages(
            index_RT=image_index(ids, config.image_token_id),
            features_RFD=self._encoded(num_images).flatten(1, 2),
            blocks_RT=None if blocks is None else blocks(self._types(ids)),
            positions_RTA=positions,
            offset_R1=None if positions is None else position_offset(positions, torch.ones_like(ids)),
        )
        packing = plan_packing(torch.ones_like(ids), 0)
        return {
            name: self._decoder(ids, packing, self._sequences(), num_past=0, num_logits=num_logits, images=images)
            for name, num_logits in (("prompt", 0), ("last prompt token", 1))
        }

    def _expected_with_images(self, num_images: int) -> Results:
        ids = self._prompt(num_images)
        names = {"token_type_ids", "mm_token_type_ids"}.intersection(self._architecture.inputs)
        types = dict.fromkeys(names, self._types(ids))
        with torch.no_grad():
            logits = self._reference(ids, **self._images(num_images), **types).logits.float()
        return {"prompt": logits, "last prompt token": logits[:, -1:]}
