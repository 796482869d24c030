"""The named classes of compiled diffusion pipelines: one list of diffusers' classes, without a class body for each.

>>> CLASSES["NeuronFluxPipeline"]
'FluxPipeline'
"""

from __future__ import annotations

import functools
from typing import Any

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


def named_class(name: str) -> Any:
    """Return a class of `CLASSES`."""
    from ...exporters.diffusion import pipeline_class

    return compiled_class(pipeline_class(CLASSES[name]))


@functools.cache
def compiled_class(stock: type) -> Any:
    """Return the class of the compiled pipelines of a stock class, which it is a subclass of."""
    from .pipeline import NeuronDiffusionPipelineBase

    name = f"Neuron{stock.__name__}"
    doc = f"diffusers' `{stock.__name__}` with models compiled for simulated NeuronCores."
    return type(name, (NeuronDiffusionPipelineBase, stock), {"__doc__": doc, "__module__": __package__, "stock": stock})
