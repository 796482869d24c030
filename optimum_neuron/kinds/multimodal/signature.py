"""How encoders of images and audio are called, and what their features add to the prompts of a decoder."""

from __future__ import annotations

from ...engine import Input, OutputAxis, RoleSignature


def patches_signature(dtype: str, patches_per_token: int) -> RoleSignature:
    """Return the signature of a vision encoder that takes the patches of images of any shape."""
    patches = Input(name="pixel_values", dtype=dtype, axes=("num_images", "num_patches", "patch_width"))
    grids = Input(name="image_grid_thw", dtype="int64", axes=("num_images", "grid_axes"))
    tokens = OutputAxis(dim=1, axis="num_patches", window=patches_per_token, stride=patches_per_token)
    return RoleSignature(
        inputs=(patches, grids),
        outputs={"image_features": (OutputAxis(dim=0, axis="num_images"), tokens)},
        padded={"num_patches": "image_grid_thw says which patches are real"},
        exact=dict.fromkeys(("patch_width", "grid_axes"), "it is a property of the model"),
    )


def vision_signature(has_mask: bool, dtype: str) -> RoleSignature:
    """Return the signature of a vision encoder: any number of images of one size."""
    reason = "the vision encoder is compiled for one size of image"
    pixels = Input(name="pixel_values", dtype=dtype, axes=("num_images", "num_channels", "height", "width"))
    mask = Input(name="pixel_attention_mask", dtype="int64", axes=("num_images", "height", "width"), default=1)
    return RoleSignature(
        inputs=(pixels, mask) if has_mask else (pixels,),
        outputs={"image_features": (OutputAxis(dim=0, axis="num_images"),)},
        exact=dict.fromkeys(("num_channels", "height", "width"), reason),
    )


def audio_signature(has_mask: bool, dtype: str) -> RoleSignature:
    """Return the signature of an audio encoder: any number of spectrograms of one length."""
    sounds = Input(name="input_features", dtype=dtype, axes=("num_audios", "feature_size", "num_frames"))
    mask = Input(name="feature_attention_mask", dtype="int64", axes=("num_audios", "num_frames"), default=1)
    return RoleSignature(
        inputs=(sounds, mask) if has_mask else (sounds,),
        outputs={"audio_features": (OutputAxis(dim=0, axis="num_audios"),)},
        exact={
            "feature_size": "it is a property of the model",
            "num_frames": "the audio encoder has positions for no other length",
        },
    )


def feature_inputs(modality: str, *, has_blocks: bool, has_axes: bool) -> tuple[Input, ...]:
    """Return the inputs of prefill and score graphs that read features.

    Args:
        has_blocks: some tokens of a prompt see each other in both directions.
        has_axes: tokens of images have positions in time, height, and width.
    """
    blocks = Input(name="block_ids", dtype="int64", axes=("batch_size", "num_tokens"))
    positions = Input(name="axis_positions", dtype="int64", axes=("batch_size", "num_tokens", "position_axes"))
    offset = Input(name="position_offset", dtype="int64", axes=("batch_size", "one"))
    return (
        Input(name=f"{modality}_index", dtype="int64", axes=("batch_size", "num_tokens")),
        Input(name=f"{modality}_features", dtype="float32", axes=("batch_size", "num_features", "hidden_size")),
        *([blocks] if has_blocks else []),
        *([positions, offset] if has_axes else []),
    )
