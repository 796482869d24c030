"""Compile, or load a compiled program and the weights of a checkpoint, as the vendor's libraries do.

The shapes that a user passes must match the program. Options that change the numbers, such as the dtype, must be those
that an export of the checkpoint would have, also where the user does not pass them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ..base.transformers_types import PreTrainedConfig
from ..errors import ConfigError, ValidationError
from ..exporters import neuron_config, read_folder
from ..sources import ModelSource
from .loading import NeuronModel
from .weights import Weights

logger = logging.getLogger(__name__)

Model = TypeVar("Model", bound=NeuronModel)

_NUMBERS = ("torch_dtype", "quantization", "modules_to_not_convert", "kv_cache_dtype")
"""Options that change the numbers of a result, besides the configuration of the model."""


def compile_with_warning(compile: Callable[..., Model], *args: object, **options: object) -> Model:
    """Return a compiled model, with a warning if its results differ from those of the reference model.

    Scripts of libraries that compare nothing have no option for a tolerance, or to leave the comparison out.

    Args:
        compile: `from_pretrained` or `from_model` of a class.
        *args: its arguments.
        **options: its keywords.
    """
    try:
        return compile(*args, **options)
    except ValidationError as error:
        logger.warning("%s", error.message)
        return compile(*args, **options, disable_validation=True)


def load_artifacts(
    kind: type[Model],
    folder: Path,
    checkpoint: Path,
    config: PreTrainedConfig,
    weights: Weights,
    options: Mapping[str, Any],
) -> Model:
    """Return the model of a checkpoint with the compiled program of a folder.

    Args:
        kind: class of the model.
        folder: an exported folder.
        checkpoint: folder of the checkpoint.
        config: configuration of the checkpoint.
        weights: weights of the checkpoint, which may have another form than safetensors.
        options: compile options that the user passed.
    """
    source = ModelSource(name=str(checkpoint), folder=checkpoint, config=config, revision=None)
    expected, _ = neuron_config(source, dict(options))
    saved = read_folder(folder).config
    pairs = ((name, getattr(expected, name), getattr(saved, name)) for name in _NUMBERS)
    differences = [f"{name}={wanted!r}, compiled with {found!r}" for name, wanted, found in pairs if wanted != found]
    if differences:
        raise ConfigError(
            f"{folder} was compiled with other options: {'; '.join(differences)}.",
            hint="Pass these options, or compile the checkpoint again.",
            folder=str(folder),
            differences=differences,
        )
    model = kind.from_pretrained(folder, config, export=False, **options)
    try:
        model.replace_weights(weights)
    except BaseException:
        model.close()
        raise
    return model
