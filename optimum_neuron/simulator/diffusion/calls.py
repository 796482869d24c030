"""What the classes of components are called with in one run: shapes and dtypes of their inputs, from configurations.

call = denoiser_call(pipeline.denoiser, rows=2, height=64, width=64, text_tokens=77, dtype="float32")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core import TensorSpec
from .modules import ComponentCall, completed_config
from .source import Component

TEXT_PIXELS = 6
"""Numbers of a picture's size and place that SDXL embeds beside the prompt."""
FLUX_PATCH = 2
"""Latents along an axis that are one token of Flux."""


def text_call(component: Component, *, rows: int, tokens: int) -> ComponentCall:
    """One run of a text encoder over prompts."""
    return ComponentCall(component=component, inputs={"input_ids": _spec("int64", rows, tokens)})


def decoder_call(vae: Component, *, rows: int, height: int, width: int, dtype: str) -> ComponentCall:
    """Latents to pictures; sizes are in latents."""
    channels = completed_config(vae)["latent_channels"]
    return ComponentCall(component=vae, method="decode", inputs={"z": _spec(dtype, rows, channels, height, width)})


def encoder_call(vae: Component, *, rows: int, height: int, width: int, dtype: str) -> ComponentCall:
    """Pictures to latents; sizes are in pixels."""
    channels = completed_config(vae)["in_channels"]
    return ComponentCall(component=vae, method="encode", inputs={"x": _spec(dtype, rows, channels, height, width)})


def denoiser_call(
    component: Component, *, rows: int, height: int, width: int, text_tokens: int, dtype: str
) -> ComponentCall:
    """One denoising step; sizes are in latents."""
    config = completed_config(component)
    inputs, absent = _DENOISERS[component.class_name](config, rows, height, width, text_tokens)
    specs = {name: _spec(dtype, *shape) for name, shape in inputs.items()}
    return ComponentCall(component=component, inputs=specs, absent=absent)


def _spec(dtype: str, *shape: int) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


_Shapes = Mapping[str, tuple[int, ...]]
_Called = tuple[_Shapes, tuple[str, ...]]


def _unet(config: Mapping[str, Any], rows: int, height: int, width: int, tokens: int) -> _Called:
    text = config["cross_attention_dim"]
    inputs = {
        "sample": (rows, config["in_channels"], height, width),
        "timestep": (),
        "encoder_hidden_states": (rows, tokens, text if isinstance(text, int) else text[0]),
    }
    if config["time_cond_proj_dim"]:
        inputs["timestep_cond"] = (rows, config["time_cond_proj_dim"])
    if config["addition_embed_type"] == "text_time":
        numbers = config["projection_class_embeddings_input_dim"] - TEXT_PIXELS * config["addition_time_embed_dim"]
        inputs |= {"added_cond_kwargs.text_embeds": (rows, numbers), "added_cond_kwargs.time_ids": (rows, TEXT_PIXELS)}
    return inputs, ()


def _pixart(config: Mapping[str, Any], rows: int, height: int, width: int, tokens: int) -> _Called:
    inputs = {
        "hidden_states": (rows, config["in_channels"], height, width),
        "encoder_hidden_states": (rows, tokens, config["caption_channels"]),
        "timestep": (rows,),
        "encoder_attention_mask": (rows, tokens),
    }
    sizes = ("added_cond_kwargs.resolution", "added_cond_kwargs.aspect_ratio")
    if config["sample_size"] != PIXART_OF_SIZES:
        return inputs, sizes
    return inputs | dict(zip(sizes, ((rows, 2), (rows, 1)), strict=True)), ()


PIXART_OF_SIZES = 128
"""Size of the samples of the PixArt models that get the size of the picture, too."""


def _sd3(config: Mapping[str, Any], rows: int, height: int, width: int, tokens: int) -> _Called:
    inputs = {
        "hidden_states": (rows, config["in_channels"], height, width),
        "encoder_hidden_states": (rows, tokens, config["joint_attention_dim"]),
        "pooled_projections": (rows, config["pooled_projection_dim"]),
        "timestep": (rows,),
    }
    return inputs, ()


def _flux(config: Mapping[str, Any], rows: int, height: int, width: int, tokens: int) -> _Called:
    places = (height // FLUX_PATCH) * (width // FLUX_PATCH)
    inputs: dict[str, tuple[int, ...]] = {
        "hidden_states": (rows, places, config["in_channels"]),
        "encoder_hidden_states": (rows, tokens, config["joint_attention_dim"]),
        "pooled_projections": (rows, config["pooled_projection_dim"]),
        "timestep": (rows,),
        "img_ids": (places, 3),
        "txt_ids": (tokens, 3),
    }
    if config["guidance_embeds"]:
        inputs["guidance"] = (rows,)
    return inputs, ()


_DENOISERS: Mapping[str, Callable[..., _Called]] = {
    "UNet2DConditionModel": _unet,
    "PixArtTransformer2DModel": _pixart,
    "Transformer2DModel": _pixart,
    "SD3Transformer2DModel": _sd3,
    "FluxTransformer2DModel": _flux,
}
DENOISERS = tuple(_DENOISERS)
"""Classes of denoisers that are counted."""
