"""Compiled diffusion pipelines: stock pipelines of diffusers whose models are programs on simulated NeuronCores.

    from optimum_neuron import NeuronDiffusionPipeline

pipeline.py has what all of them add to diffusers; the named classes, in `classes.py`, are made when they are first
used.
"""

from typing import Any

from .classes import CLASSES
from .pipeline import named_class

__all__ = ["NeuronDiffusionPipeline", "NeuronDiffusionPipelineBase", *CLASSES]


def __getattr__(name: str) -> Any:
    if name in CLASSES:
        return named_class(name)
    if name in ("NeuronDiffusionPipeline", "NeuronDiffusionPipelineBase"):
        from . import pipeline

        return getattr(pipeline, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
