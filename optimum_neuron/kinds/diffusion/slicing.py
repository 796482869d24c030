"""Options that trade time for memory: attention of a part of the heads at a time, pictures decoded in tiles or singly.

They are diffusers' own settings of a model, made before its graphs are captured. It knows no programs or pipelines.

    sliced(vae, config)                        # a copy that shares its weights
    remedy("enable_vae_tiling")                # the option that a compiled pipeline has in its place
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, TypeVar

from torch import nn

from ...errors import ConfigError
from .configuration import NeuronDiffusionConfig

Model = TypeVar("Model", bound=nn.Module)

_SETTERS = {"attention_slicing": "set_attention_slice", "vae_tiling": "enable_tiling", "vae_slicing": "enable_slicing"}
"""Option and the method of diffusers' models that it calls."""

_OPTIONS = {
    **dict.fromkeys(("enable_attention_slicing", "set_attention_slice"), 'attention_slicing="auto"'),
    **dict.fromkeys(("enable_vae_tiling", "enable_tiling"), "vae_tiling=True"),
    **dict.fromkeys(("enable_vae_slicing", "enable_slicing"), "vae_slicing=True"),
}
"""Methods that compiled pipelines and models refuse, and the option of the export that does the same."""


def remedy(method: str) -> str:
    """Return what to do in place of a method that would change compiled code.

    >>> remedy("enable_vae_tiling")
    'Export the pipeline with vae_tiling=True.'
    """
    option = _OPTIONS.get(method)
    return "Export the pipeline again with the change." if option is None else f"Export the pipeline with {option}."


def comparable(model: Model, config: NeuronDiffusionConfig) -> Model:
    """Return a reference model with tiles only, which blend: slices give the results of a whole model."""
    return sliced(model, config, options=("vae_tiling",))


def sliced(model: Model, config: NeuronDiffusionConfig, *, options: Iterable[str] = tuple(_SETTERS)) -> Model:
    """Return a model as the options change it; a changed one is a copy that shares its weights."""
    setters = [(_SETTERS[option], getattr(config, option)) for option in options if hasattr(model, _SETTERS[option])]
    wanted = [(name, value) for name, value in setters if value not in (False, "none")]
    if not wanted:
        return model
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    model = copy.deepcopy(model, shared)
    for name, value in wanted:
        getattr(model, name)(*(() if value is True else (value,)))
    return model


def require_sliceable(models: Iterable[nn.Module], config: NeuronDiffusionConfig) -> None:
    """Check that each option changes one of a pipeline's models."""
    models = list(models)
    for option, name in _SETTERS.items():
        value = getattr(config, option)
        if value not in (False, "none") and not any(hasattr(model, name) for model in models):
            kinds = ", ".join(sorted(type(model).__name__ for model in models))
            message = f"{option}={value!r} has no effect on this pipeline: none of {kinds} has {name}."
            raise ConfigError(message, hint="Remove it.", option=option, value=value)
