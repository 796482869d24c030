"""`NeuronImageTextConfig`: shapes of a model that reads images and text.

It knows nothing of architectures: `architectures.py` says what sizes one has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Self

from ...configuration import NeuronConfig, count_refusal, is_count
from ...errors import ConfigError, refusal

IMAGE_SIZES = ("max_num_images", "image_size", "image_batch_size")
"""Fields that a configuration has beyond those of a decoder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronImageTextConfig(NeuronConfig):
    """Static shapes, arithmetic and target of one compiled vision encoder and decoder.

    Example:
        ```python
        from optimum_neuron import NeuronImageTextConfig

        config = NeuronImageTextConfig(sequence_length=512, max_num_images=2, image_size=384)
        assert config.resolve(max_position_embeddings=8192).prefill_buckets == (128, 512)
        ```
    """

    resolved = (*NeuronConfig.resolved, "max_num_images", "image_size")

    task: str = "image-text-to-text"
    """Task, as transformers' pipelines name it."""
    max_num_images: int | None = None
    """Images of a prompt; one that is split counts as its tiles. None: what one image is split into."""
    image_size: int | None = None
    """Pixels of an image, or of a tile, in height and in width. None: the processor's, or the model's."""
    image_batch_size: int = 1
    """Images that the vision encoder takes at once; fewer are padded, more are split."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Fields that are sizes of the model's inputs."""
        return (*super().axes, *IMAGE_SIZES)

    def _problems(self) -> Iterator[str]:
        for name in IMAGE_SIZES:
            value = getattr(self, name)
            if not is_count(value) and not (name != "image_batch_size" and value is None):
                yield count_refusal(name, value)
        yield from super()._problems()

    def with_images(self, *, max_num_images: int, image_size: int, image_tokens: int) -> Self:
        """Return a copy of a resolved configuration with the sizes of images filled in.

        Args:
            max_num_images: images of a prompt where none is asked for, cut to what a sequence holds.
            image_size: pixels of an image in height and in width.
            image_tokens: tokens of a prompt that stand for one image.

        Raises:
            ConfigError: a sequence does not hold so many images.
        """
        assert self.sequence_length is not None, "resolved configuration"
        held = (self.sequence_length - 1) // image_tokens
        wanted = self.max_num_images or min(max_num_images, max(held, 1))
        if wanted > held:
            raise ConfigError(
                refusal(
                    asked=f"max_num_images={wanted} with sequence_length={self.sequence_length}",
                    found=f"images of {image_tokens} tokens each: a sequence holds {held} and a token of text",
                    why="each token of an image takes a slot of the cache",
                    do=f"pass sequence_length={wanted * image_tokens + 1} or more",
                )
            )
        return dataclasses.replace(self, max_num_images=wanted, image_size=image_size)
