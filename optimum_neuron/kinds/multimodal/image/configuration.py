"""`NeuronImageTextConfig`: shapes of a model that reads images and text.

It knows nothing of architectures: `architectures.py` says what sizes one has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Self

from ....errors import ConfigError
from ....options.configuration import NeuronConfig
from ....options.decoder_options import chunk_errors
from ....options.option import OPEN, option
from ....options.sizes import count_errors, size_errors

IMAGE_SIZES = ("max_num_images", "image_size", "image_batch_size")
"""Fields that a configuration has beyond those of a decoder."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronImageTextConfig(NeuronConfig):
    """Static shapes, arithmetic and target of one compiled vision encoder and decoder.

    Example:
        ```python
        from optimum_neuron import NeuronImageTextConfig

        config = NeuronImageTextConfig(sequence_length=512, max_num_images=2, image_size=384)
        resolved = config.resolve(max_position_embeddings=8192, max_num_images=1, image_size=512, image_tokens=64)
        assert (resolved.prefill_buckets, resolved.max_num_images) == ((128, 512), 2)
        ```
    """

    sizes_of_model = (*NeuronConfig.sizes_of_model, "max_num_images", "image_size")

    task: str = "image-text-to-text"
    """Task, as transformers' pipelines name it."""
    max_num_images: int = option(
        OPEN, help="images of a prompt (image-text-to-text); one that is split counts as its tiles"
    )
    """Images of a prompt; one that is split counts as its tiles. None: the tiles of one image."""
    image_size: int | tuple[int, ...] = option(
        OPEN, help="pixels of such an image, or tile, in height and in width", is_input_size=True
    )
    """Pixels of an image, or of a tile, in height and in width; several where images have any shape (Qwen): the
    smallest with enough patches runs. None: the processor's, or the model's."""
    image_batch_size: int = 1
    """Images that the vision encoder takes at once; fewer are padded, more are split."""

    @property
    def axes(self) -> tuple[str, ...]:
        return (*super().axes, *IMAGE_SIZES)

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("max_num_images",), optional=True)
        yield from size_errors(self, ("image_size",))
        yield from count_errors(self, ("image_batch_size",))
        yield from super()._problems()
        yield from chunk_errors(self, "images")

    def resolve(  # type: ignore[override]  # images add sizes
        self,
        *,
        max_position_embeddings: int,
        max_num_images: int,
        image_size: int | tuple[int, ...],
        image_tokens: int,
    ) -> Self:
        """Return the complete configuration, with lengths and sizes of images for a model.

        Args:
            max_position_embeddings: positions of the decoder.
            max_num_images: default images of a prompt, cut to what a sequence holds.
            image_size: default pixels of an image in height and in width.
            image_tokens: tokens of a prompt that stand for one image of the largest size.

        Raises:
            ConfigError: a sequence is too long for the model, or does not hold so many images.
        """
        lengths = self._lengths(max_position_embeddings)
        length = lengths["sequence_length"]
        limit = (length - 1) // image_tokens
        num_images = self.max_num_images or min(max_num_images, max(limit, 1))
        if num_images > limit:
            needed = num_images * image_tokens + 1
            holds = f"{limit} images of {image_tokens} tokens and a token of text"
            raise ConfigError(
                f"max_num_images is {num_images}, but sequence_length={length} holds {holds}.",
                hint=f"Pass sequence_length={needed} or more.",
                **{"option": "max_num_images", "value": num_images, "limit": limit, "sequence_length": needed},
            )
        size = self.image_size or image_size
        return self.completed(**lengths, max_num_images=num_images, image_size=size)
