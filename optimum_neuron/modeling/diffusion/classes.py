"""The named classes of compiled diffusion pipelines: one list of diffusers' classes, without a class body for each.

>>> CLASSES["NeuronFluxPipeline"]
'FluxPipeline'
"""

from __future__ import annotations

_STOCK = (
    *(f"StableDiffusion{variant}Pipeline" for variant in ("", "Img2Img", "Inpaint", "InstructPix2Pix", "ControlNet")),
    *(f"StableDiffusionXL{variant}Pipeline" for variant in ("", "Img2Img", "Inpaint", "ControlNet")),
    "LatentConsistencyModelPipeline",
    *(f"PixArt{variant}Pipeline" for variant in ("Alpha", "Sigma")),
    *(f"StableDiffusion3{variant}Pipeline" for variant in ("", "Img2Img", "Inpaint")),
    *(f"Flux{variant}Pipeline" for variant in ("", "Kontext", "Img2Img", "Inpaint")),
    *("LTXPipeline", "DDPMPipeline", "DDIMPipeline"),
)

CLASSES = {f"Neuron{name}": name for name in _STOCK}
"""Our names to diffusers'."""
