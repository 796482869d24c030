"""What every trainer of TRL needs here: TRL itself, a configuration of the right class, a model's folder.

with requiring_trl("NeuronSFTTrainer", "trl.SFTTrainer"):
    from trl import SFTTrainer
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
from collections.abc import Iterator
from typing import Any, TypeVar

from ...checkpoints import resolve_model
from ...errors import ConfigError, refusal

Configuration = TypeVar("Configuration")


@contextlib.contextmanager
def requiring_trl(ours: str, theirs: str) -> Iterator[None]:
    """Import a class of TRL, or say why there is none.

    Args:
        ours: the trainer that is made of it.
        theirs: where TRL has it, such as "trl.SFTTrainer".

    Raises:
        ConfigError: TRL is not installed, or this version of it has no such class.
    """
    try:
        yield
    except ImportError as problem:
        module, _, name = theirs.rpartition(".")
        try:
            version = importlib.metadata.version("trl")
        except importlib.metadata.PackageNotFoundError:
            found, do = "TRL is not installed", "pip install trl peft datasets"
        else:
            found = f"TRL {version}, from which it cannot be imported ({problem})"
            do = f"install a version of TRL that has {name} in {module}"
        raise ConfigError(
            refusal(asked=ours, found=found, why=f"it is {theirs} with what Neuron adds, and no copy of it", do=do)
        ) from problem


def configuration_for(trainer: str, given: Any, kind: type[Configuration], model: Any) -> Configuration:
    """The configuration that a trainer was given, or the one that TRL would make for it.

    Args:
        trainer: name of the trainer's class.
        given: what the user passed as `args`.
        kind: class of its configurations.
        model: model, id or folder.

    Raises:
        ConfigError: it is of another class.
    """
    if isinstance(given, kind):
        return given
    if given is None:
        name = model if isinstance(model, str) else getattr(getattr(model, "config", None), "_name_or_path", "")
        method = kind.__name__.removeprefix("Neuron").removesuffix("Config")
        return kind(output_dir=f"{name.rstrip('/').rpartition('/')[2] or 'model'}-{method}")  # type: ignore[call-arg]
    raise ConfigError(
        refusal(
            asked=f"{trainer}(args={type(given).__name__}(...))",
            found=f"no {kind.__name__}",
            why="a trainer's options are TRL's, transformers' and those that Neuron adds, in one class",
            do=f"use {kind.__name__}, which takes the same keywords",
        )
    )


def model_for(model: Any) -> Any:
    """The model that a trainer was given; the folder of one that `neuron fetch` knows by name."""
    return str(resolve_model(model).value) if isinstance(model, str) else model
