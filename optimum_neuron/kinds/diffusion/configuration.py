"""`NeuronDiffusionConfig`: sizes of the pictures that a compiled diffusion pipeline makes.

It knows nothing of pipelines: a dry run finds out how these sizes reach their models (`dry_run.py`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, get_args

from ...errors import ConfigError, invalid_choice
from ...options.configuration import CompileConfig
from ...options.option import option
from ...options.sizes import count_errors, size_errors

DataParallelMode = Literal["none", "unet", "transformer", "all"]
"""Which programs are loaded on every core that the process may use."""

AttentionSlicing = Literal["none", "auto", "max"]
"""diffusers' `slice_size`: half of the heads at a time, or one head."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NeuronDiffusionConfig(CompileConfig):
    """Static shapes, arithmetic and target of one compiled diffusion pipeline.

    Example:
        ```python
        from optimum_neuron import NeuronDiffusionConfig

        config = NeuronDiffusionConfig(height=512, width=[512, 768])
        assert config.resolutions() == [(512, 512), (512, 768)]
        ```
    """

    group: ClassVar[str] = "diffusion pipelines (sizes may be several, for example 512,768)"

    task: str = "text-to-image"
    """Task: text-to-image, image-to-image, inpainting, text-to-video, or unconditional-image-generation."""
    batch_size: int = 1
    """Prompts per call; fewer are padded, more are split."""
    num_images_per_prompt: int = option(1, help="pictures of each prompt")
    """Pictures of each prompt."""
    height: int | tuple[int, ...] | None = None
    """Pixels of a picture, or several sizes. None: the pipeline's default."""
    width: int | tuple[int, ...] | None = None
    """Pixels of a picture, or several sizes: every height is compiled with every width. None: the default."""
    num_frames: int | None = option(None, help="frames of a video")
    """Frames of a video. None: the pipeline's default."""
    sequence_length: int | None = None
    """Tokens of a prompt, where the pipeline takes a number of them (T5). None: its default."""
    guidance_scale: float | None = option(
        None, help="guidance that is compiled for: 0 for models without, such as turbo models (default: the pipeline's)"
    )
    """Guidance that is compiled for; 0 compiles one row for each picture. None: the pipeline's default."""
    data_parallel_mode: DataParallelMode = option(
        "none", help="programs that are on every core, which share the rows of a call", metavar="MODE"
    )
    """Programs that are loaded on every core: with guidance, each core computes one of the two rows of a step."""
    tensor_parallel_size: int = 1
    """Cores that share a diffusion transformer and T5; other programs have one core each."""
    attention_slicing: AttentionSlicing = option(
        "none", help="attention of a U-Net for half of the heads at a time (auto) or one (max)", metavar="SIZE"
    )
    """Attention of a U-Net in parts, as after diffusers' `enable_attention_slicing`: half of the heads, or one."""
    vae_tiling: bool = option(False, help="encode and decode large pictures in tiles that overlap")
    """Encode and decode large pictures in overlapping tiles, as after diffusers' `enable_vae_tiling`."""
    vae_slicing: bool = option(False, help="encode and decode the pictures of a call one after the other")
    """Encode and decode the pictures of a call one after the other, as after diffusers' `enable_vae_slicing`."""
    output_hidden_states: bool = False
    """Let text encoders return every layer's hidden states, where they are asked for them, as Compel does."""
    component: str = option("", is_keyword=False)
    """Program of the pipeline, such as "unet" or "vae_decoder"; empty for the whole."""
    calls: tuple[dict[str, Any], ...] = option((), is_keyword=False)
    """How the pipeline calls it, as `engine.Call.to_dict` writes it."""

    def _problems(self) -> Iterator[ConfigError]:
        yield from count_errors(self, ("batch_size", "num_images_per_prompt", "tensor_parallel_size"))
        yield from count_errors(self, ("num_frames", "sequence_length"), optional=True)
        yield from size_errors(self, ("height", "width"))
        scale = self.guidance_scale
        if scale is not None and (type(scale) not in (int, float) or not math.isfinite(scale)):
            message = f"guidance_scale is {scale!r}, but must be a number."
            yield ConfigError(message, hint="Pass a number, for example 7.5.", option="guidance_scale", value=scale)
        if self.data_parallel_mode not in get_args(DataParallelMode):
            yield invalid_choice("data_parallel_mode", self.data_parallel_mode, get_args(DataParallelMode))  # type: ignore[misc]
        if self.tensor_parallel_size != 1 and self.data_parallel_mode in ("transformer", "all"):
            message = f"data_parallel_mode={self.data_parallel_mode!r} puts a transformer on every core that shares it."
            options = ["data_parallel_mode", "tensor_parallel_size"]
            yield ConfigError(message, hint="Remove one of the two.", options=options)
        if self.attention_slicing not in get_args(AttentionSlicing):
            yield invalid_choice("attention_slicing", self.attention_slicing, get_args(AttentionSlicing))  # type: ignore[misc]
        yield from super()._problems()

    @property
    def axes(self) -> tuple[str, ...]:
        names = ("batch_size", "num_images_per_prompt", "height", "width", "num_frames", "sequence_length")
        return tuple(name for name in names if getattr(self, name) is not None)

    def resolutions(self) -> list[tuple[int | None, int | None]]:
        """Return every height with every width."""
        heights, widths = (value if isinstance(value, tuple) else (value,) for value in (self.height, self.width))
        return list(itertools.product(heights, widths))
