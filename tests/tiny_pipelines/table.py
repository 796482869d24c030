"""Tiny random pipelines of diffusers, one row for each kind that the toolkit compiles, saved as stock folders.

    >>> sorted(PIPELINES)[:2]
    ['ddim', 'ddpm']

`save_pipeline(folder, "sdxl")` writes a row's components, `arguments("sdxl")` are keywords of a call with two steps.
A row whose `class_name` differs from another's only by the task shares that row's components.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from tests.tiny_pipelines import components as c

Part = tuple[str, dict[str, Any]]
"""Class name and options of a component."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tiny:
    """A pipeline of tiny components."""

    class_name: str
    """Its class in diffusers."""
    parts: dict[str, Part | list[Part] | None]
    """Its components by name; a list for several ControlNets."""
    inputs: tuple[str, ...] = ("prompt",)
    """Names of `calls.INPUTS` that a call needs."""
    call: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Other keywords of a call."""
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keywords of the class that are no components."""


_DDIM = ("DDIMScheduler", {"beta_schedule": "scaled_linear", "clip_sample": False, "steps_offset": 1})
_FLOW = ("FlowMatchEulerDiscreteScheduler", {})
_EULER = (
    "EulerDiscreteScheduler",
    {"beta_schedule": "scaled_linear", "timestep_spacing": "leading", "steps_offset": 1},
)
_CLIP = {"text_encoder": ("CLIPTextModel", c.CLIP), "tokenizer": ("CLIPTokenizer", {})}
_VAE = {"vae": ("AutoencoderKL", c.VAE)}
_VAE_SHIFTED = {"vae": ("AutoencoderKL", c.VAE_SHIFTED)}
_SD = _CLIP | _VAE | {"unet": ("UNet2DConditionModel", c.UNET), "scheduler": _DDIM}
_SD |= {"safety_checker": None, "feature_extractor": None}
_CLIP_G: dict[str, Any] = {
    "text_encoder_2": ("CLIPTextModelWithProjection", c.CLIP | {"hidden_act": "gelu"}),
    "tokenizer_2": ("CLIPTokenizer", {"pad_token": "!"}),
}
_SDXL = _CLIP | _CLIP_G | _VAE | {"unet": ("UNet2DConditionModel", c.UNET_XL), "scheduler": _EULER}
_T5 = {"text_encoder": ("T5EncoderModel", c.T5), "tokenizer": ("T5Tokenizer", {})}
_PIXART = _T5 | _VAE | {"transformer": ("PixArtTransformer2DModel", c.PIXART), "scheduler": _DDIM}
_SD3 = (
    _CLIP_G
    | {"vae": ("AutoencoderKL", c.VAE_16)}
    | {"transformer": ("SD3Transformer2DModel", c.SD3), "scheduler": _FLOW}
)
_SD3 |= {"text_encoder": ("CLIPTextModelWithProjection", c.CLIP), "tokenizer": ("CLIPTokenizer", {})}
_SD3 |= {"text_encoder_3": ("T5EncoderModel", c.T5), "tokenizer_3": ("T5Tokenizer", {})}
_FLUX = _CLIP | _VAE_SHIFTED | {"transformer": ("FluxTransformer2DModel", c.FLUX), "scheduler": _FLOW}
_FLUX |= {"text_encoder_2": ("T5EncoderModel", c.T5), "tokenizer_2": ("T5Tokenizer", {})}
_LTX = _T5 | {"vae": ("AutoencoderKLLTXVideo", c.VAE_VIDEO), "scheduler": _FLOW}
_LTX |= {"transformer": ("LTXVideoTransformer3DModel", c.LTX)}

_CONTROL = ("ControlNetModel", c.CONTROLNET)
_CONTROL_XL = ("ControlNetModel", c.CONTROLNET_XL)
_IMAGE = ("prompt", "image")
_INPAINT = ("prompt", "image", "mask_image")
_PIXART_CALL = {"use_resolution_binning": False, "max_sequence_length": c.TOKENS, "clean_caption": False}
_T5_CALL = {"max_sequence_length": c.TOKENS}


def _unet(parts: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """`parts` with other options of the U-Net."""
    class_name, options = parts["unet"]
    return parts | {"unet": (class_name, options | changes)}


PIPELINES: dict[str, Tiny] = {
    "sd": Tiny(class_name="StableDiffusionPipeline", parts=_SD),
    "sd-img2img": Tiny(class_name="StableDiffusionImg2ImgPipeline", parts=_SD, inputs=_IMAGE),
    "sd-inpaint": Tiny(class_name="StableDiffusionInpaintPipeline", parts=_SD, inputs=_INPAINT),
    "sd-inpaint-9": Tiny(class_name="StableDiffusionInpaintPipeline", parts=_unet(_SD, in_channels=9), inputs=_INPAINT),
    "sd-turbo": Tiny(
        class_name="StableDiffusionPipeline", parts=_SD | {"scheduler": _EULER}, call={"guidance_scale": 0.0}
    ),
    "sd-safety": Tiny(
        class_name="StableDiffusionPipeline",
        parts=_SD
        | {"safety_checker": ("StableDiffusionSafetyChecker", {}), "feature_extractor": ("CLIPImageProcessor", {})},
    ),
    "pix2pix": Tiny(
        class_name="StableDiffusionInstructPix2PixPipeline", parts=_unet(_SD, in_channels=8), inputs=_IMAGE
    ),
    "lcm": Tiny(
        class_name="LatentConsistencyModelPipeline",
        parts=_unet(_SD, time_cond_proj_dim=8) | {"scheduler": ("LCMScheduler", {"beta_schedule": "scaled_linear"})},
    ),
    "lcm-img2img": Tiny(
        class_name="LatentConsistencyModelImg2ImgPipeline",
        parts=_unet(_SD, time_cond_proj_dim=8) | {"scheduler": ("LCMScheduler", {"beta_schedule": "scaled_linear"})},
        inputs=_IMAGE,
    ),
    "sd-controlnet": Tiny(
        class_name="StableDiffusionControlNetPipeline",
        parts=_SD | {"controlnet": _CONTROL},
        inputs=("prompt", "control_as_image"),
    ),
    "sd-controlnet-2": Tiny(
        class_name="StableDiffusionControlNetPipeline",
        parts=_SD | {"controlnet": [_CONTROL, _CONTROL]},
        inputs=("prompt", "controls_as_image"),
        call={"controlnet_conditioning_scale": [0.75, 0.25]},
    ),
    "sd-controlnet-img2img": Tiny(
        class_name="StableDiffusionControlNetImg2ImgPipeline",
        parts=_SD | {"controlnet": _CONTROL},
        inputs=("prompt", "image", "control_image"),
    ),
    "sd-controlnet-inpaint": Tiny(
        class_name="StableDiffusionControlNetInpaintPipeline",
        parts=_SD | {"controlnet": _CONTROL},
        inputs=(*_INPAINT, "control_image"),
    ),
    "sdxl": Tiny(class_name="StableDiffusionXLPipeline", parts=_SDXL),
    "sdxl-img2img": Tiny(class_name="StableDiffusionXLImg2ImgPipeline", parts=_SDXL, inputs=_IMAGE),
    "sdxl-refiner": Tiny(
        class_name="StableDiffusionXLImg2ImgPipeline",
        parts=_SDXL | {"unet": ("UNet2DConditionModel", c.UNET_REFINER), "text_encoder": None, "tokenizer": None},
        inputs=_IMAGE,
        options={"requires_aesthetics_score": True},
    ),
    "sdxl-inpaint": Tiny(class_name="StableDiffusionXLInpaintPipeline", parts=_SDXL, inputs=_INPAINT),
    "sdxl-inpaint-9": Tiny(
        class_name="StableDiffusionXLInpaintPipeline", parts=_unet(_SDXL, in_channels=9), inputs=_INPAINT
    ),
    "sdxl-controlnet": Tiny(
        class_name="StableDiffusionXLControlNetPipeline",
        parts=_SDXL | {"controlnet": _CONTROL_XL},
        inputs=("prompt", "control_as_image"),
    ),
    "sdxl-controlnet-2": Tiny(
        class_name="StableDiffusionXLControlNetPipeline",
        parts=_SDXL | {"controlnet": [_CONTROL_XL, _CONTROL_XL]},
        inputs=("prompt", "controls_as_image"),
        call={"controlnet_conditioning_scale": [0.75, 0.25]},
    ),
    "sdxl-controlnet-img2img": Tiny(
        class_name="StableDiffusionXLControlNetImg2ImgPipeline",
        parts=_SDXL | {"controlnet": _CONTROL_XL},
        inputs=("prompt", "image", "control_image"),
    ),
    "sdxl-controlnet-inpaint": Tiny(
        class_name="StableDiffusionXLControlNetInpaintPipeline",
        parts=_SDXL | {"controlnet": _CONTROL_XL},
        inputs=(*_INPAINT, "control_image"),
    ),
    "pixart-alpha": Tiny(class_name="PixArtAlphaPipeline", parts=_PIXART, call=_PIXART_CALL),
    "pixart-sigma": Tiny(class_name="PixArtSigmaPipeline", parts=_PIXART, call=_PIXART_CALL),
    "sd3": Tiny(class_name="StableDiffusion3Pipeline", parts=_SD3, call=_T5_CALL),
    "sd3-img2img": Tiny(class_name="StableDiffusion3Img2ImgPipeline", parts=_SD3, inputs=_IMAGE, call=_T5_CALL),
    "sd3-inpaint": Tiny(class_name="StableDiffusion3InpaintPipeline", parts=_SD3, inputs=_INPAINT, call=_T5_CALL),
    "flux": Tiny(class_name="FluxPipeline", parts=_FLUX, call=_T5_CALL),
    "flux-img2img": Tiny(class_name="FluxImg2ImgPipeline", parts=_FLUX, inputs=_IMAGE, call=_T5_CALL),
    "flux-inpaint": Tiny(class_name="FluxInpaintPipeline", parts=_FLUX, inputs=_INPAINT, call=_T5_CALL),
    "flux-kontext": Tiny(
        class_name="FluxKontextPipeline",
        parts=_FLUX,
        inputs=_IMAGE,
        call=_T5_CALL | {"max_area": c.SIDE**2, "_auto_resize": False},
    ),
    "ltx": Tiny(class_name="LTXPipeline", parts=_LTX, call=_T5_CALL | {"num_frames": 9}),
    "ltx-image": Tiny(
        class_name="LTXImageToVideoPipeline", parts=_LTX, inputs=_IMAGE, call=_T5_CALL | {"num_frames": 9}
    ),
    "ddpm": Tiny(
        class_name="DDPMPipeline",
        parts={"unet": ("UNet2DModel", c.UNET_UNCONDITIONAL), "scheduler": ("DDPMScheduler", {})},
        inputs=(),
    ),
    "ddim": Tiny(
        class_name="DDIMPipeline",
        parts={"unet": ("UNet2DModel", c.UNET_UNCONDITIONAL), "scheduler": ("DDIMScheduler", {})},
        inputs=(),
    ),
}
"""Kinds of pipelines by short name."""


def make_pipeline(name: str, *, seed: int = 0, **changes: Part | None) -> Any:
    """Build a row's stock pipeline with random weights.

    Args:
        name: A key of `PIPELINES`.
        seed: The seed of its weights.
        changes: Components in place of the row's; None leaves one out.
    """
    import diffusers

    row = PIPELINES[name]
    made: dict[str, Any] = {}
    for index, (part, value) in enumerate({**row.parts, **changes}.items()):
        if isinstance(value, list):
            made[part] = [c.build(*one, seed=seed + 100 * i + index) for i, one in enumerate(value)]
        else:
            made[part] = value and c.build(*value, seed=seed + index)
    options = dict(row.options)
    if "safety_checker" in made:
        options["requires_safety_checker"] = made["safety_checker"] is not None
    pipeline = getattr(diffusers, row.class_name)(**made, **options)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def save_pipeline(folder: Path, name: str, *, seed: int = 0, **changes: Part | None) -> Path:
    """Write a row's folder as `save_pretrained` of diffusers does; arguments are `make_pipeline`'s."""
    make_pipeline(name, seed=seed, **changes).save_pretrained(folder)
    return folder
