"""Groups of arguments that scripts pass as one object, such as `lora_args=LoRAAdapterArguments(...)`."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

Names: TypeAlias = str | list[str] | None
Scales: TypeAlias = float | list[float] | None


@dataclasses.dataclass
class LoRAAdapterArguments:
    """LoRA adapters of a diffusion pipeline: one value, or a list with one for each."""

    model_ids: Names = None
    weight_names: Names = None
    adapter_names: Names = None
    scales: Scales = None


@dataclasses.dataclass
class IPAdapterArguments:
    """Image adapters of a diffusion pipeline: one value, or a list with one for each."""

    model_id: Names = None
    subfolder: Names = None
    weight_name: Names = None
    scale: Scales = None


@dataclasses.dataclass
class ImageEncoderArguments:
    """Sizes of an encoder of images."""

    sequence_length: int | None = None
    hidden_size: int | None = None
    projection_dim: int | None = None


InputShapesArguments = dataclasses.make_dataclass(
    "InputShapesArguments",
    [
        *(
            (name, int | None, None)
            for name in (
                *("batch_size", "text_batch_size", "image_batch_size", "sequence_length", "num_choices", "width"),
                *("height", "image_size", "num_images_per_prompt", "patch_size", "num_channels", "feature_size"),
                *("nb_max_frames", "audio_sequence_length", "visual_seq_length", "point_batch_size"),
                *("nb_points_per_image", "num_beams", "vae_scale_factor", "encoder_hidden_size"),
            )
        ),
        ("image_encoder_shapes", ImageEncoderArguments | None, None),
        ("rotary_axes_dim", int | None, None),
    ],
    namespace={"__doc__": "Sizes of inputs; `vars(shapes)` are keywords of an export."},
)
