"""Load an exported folder: check everything in it against everything else, bind the weights, claim a core.

Nothing is compiled, except missing host code for this machine; nothing in the folder is executed or unpickled.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

from ..artifact import Artifact, open_artifact
from ..base import env
from ..base.core import Choice
from ..base.transformers_types import PreTrainedConfig
from ..compiler.lower import Mode, lower
from ..engine import Signature
from ..errors import ArtifactError, ConfigError
from ..hardware import require_degrees, resolve_instance, resolve_target
from ..options.configuration import NEFF_FILE, degrees_of
from ..options.option import EXPORT_HELP, check_known
from ..options.peer_attributes import with_origin
from ..runtime import claimed
from ..sources import ModelSource, read_config
from ..weights import Checkpoint
from .folder import FolderInfo, read_folder, verify_weights
from .prepared import Prepared
from .request import plain_options, structure_differences

logger = logging.getLogger(__name__)

_METADATA = ("family", "stacks", "weight_sources", "placement")
"""Keys of the metadata of an exported NEFF, see `build.Built.metadata`."""


def load_exported(
    folder: Path,
    options: dict[str, Any],
    *,
    name: str,
    revision: str | None = None,
    config: PreTrainedConfig | None = None,
    trust_remote_code: bool = False,
    host_code: Mode = "background",
) -> Prepared:
    """Load an exported folder.

    Args:
        folder: where it is.
        options: Compile options named by the user; they must match the export.
        name: the user's name of the model, for messages, also to other processes that find the core busy.
        revision: as requested on the Hub.
        config: a transformers configuration that the user expects to be in the folder.
        trust_remote_code: let code that came with the checkpoint read its configuration.
        host_code: when missing code for this machine is compiled.
    """
    info = read_folder(folder)
    options = info.kind.plain(plain_options({key: value for key, value in options.items() if value is not None}))
    check_known(
        options, info.kind.config_class.option_names(), what=f"a model for {info.config.task}", listed=EXPORT_HELP
    )
    _check_options(info, options, folder)
    verify_weights(folder, info.artifact)
    # The machine that is simulated now comes before the one of the export: an artifact moves between instances.
    instance_type = options.get("instance_type") or env.instance_type() or info.config.instance_type
    target, instance = resolve_target(instance_type), resolve_instance(instance_type).value
    artifact = open_artifact(folder / NEFF_FILE, target=target.value)
    _check_program(artifact, info)
    require_degrees(instance, **degrees_of(info.config))
    saved = read_config(folder, trust_remote_code=trust_remote_code)
    _check_config(config, saved, folder, info.config.task)
    host_level = options.get("optlevel", info.config.optlevel)
    prepared = Prepared(
        source=ModelSource(
            name=name,
            folder=folder,
            revision=revision,
            config=saved,
            random_weights=_random_weights(info.artifact, name),
        ),
        config=with_origin(
            dataclasses.replace(info.config, optlevel=host_level, instance_type=instance.name),
            info.artifact["checkpoint"],
            info.artifact["revision"],
        ),
        target=target,
        artifact=artifact,
        cache=Choice(value=artifact.path, reason="hit: loaded from the exported folder"),
        validation=info.validation,
        validated=Choice(
            value="recorded" if info.validation else "off",
            reason="compared by the export" if info.validation else "the export was not compared",
        ),
    )
    tensors = artifact.inlined_weights() or Choice(
        value=Checkpoint.open(folder), reason="mapped from the exported folder"
    )
    weights = artifact.bind(tensors.value)
    with claimed(instance, model=name, num_cores=artifact.num_cores.value) as claim:
        prepared.require_room(claim)
        host = lower(artifact.host_program, optlevel=host_level, mode=host_code)
        return prepared.on_core(tensors, weights, host, claim)


def _random_weights(artifact: dict[str, Any], name: str) -> tuple[str, ...]:
    """The weights that an export filled with random numbers; a warning names them."""
    names = tuple(map(str, artifact.get("random_weights") or ()))
    if names:
        logger.warning("%s was exported with random numbers as weights: %s.", name, ", ".join(names))
    return names


def _check_options(info: FolderInfo, options: dict[str, Any], folder: Path) -> None:
    """Reject options that contradict the export; the host's effort and the instance size are free."""
    saved = info.config.to_dict()
    free = ("optlevel", "instance_type")
    differences = [
        f"{key}={value!r}, compiled with {saved[key]!r}"
        for key, value in options.items()
        if key not in free and _as_saved(saved[key]) != _as_saved(value)
    ]
    if differences:
        raise _compiled_otherwise(folder, differences)


def _compiled_otherwise(folder: Path, differences: list[str]) -> ConfigError:
    message = f"{folder} was exported with other options: {'; '.join(differences)}."
    hint = "Remove these options, or export the checkpoint again with them."
    return ConfigError(message, hint=hint, folder=str(folder), differences=differences)


def _as_saved(value: object) -> Any:
    """An option in the form that JSON has; a list of one size is that size."""
    if not isinstance(value, (list, tuple)):
        return value
    return value[0] if len(value) == 1 else list(value)


def _check_config(config: PreTrainedConfig | None, saved: PreTrainedConfig, folder: Path, task: str) -> None:
    differences = [] if config is None else structure_differences(config, saved, task)
    if differences:
        raise _compiled_otherwise(folder, [f"config.{difference}" for difference in differences])


def _check_program(artifact: Artifact, info: FolderInfo) -> None:
    """Compare the program with `neuron_config.json`: a difference would fail in the middle of a generation."""
    problems = [f"its metadata has no {key}" for key in _METADATA if key not in artifact.metadata]
    if "signature" in artifact.metadata:
        problems += Signature.from_dict(artifact.metadata["signature"], file=artifact.path).problems(artifact.program)
    try:
        problems += info.kind.problems(artifact.program, artifact.metadata, info.config)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        problems.append(f"its metadata was not written by an export ({type(error).__name__}: {error})")
    actual_degrees = (artifact.shards.group_size, artifact.program.num_stages)
    problems += [
        f"it was compiled for {name}={actual} instead of {expected}"
        for (name, expected), actual in zip(degrees_of(info.config).items(), actual_degrees, strict=True)
        if actual != expected
    ]
    if problems:
        message = f"{artifact.path} does not agree with the neuron_config.json beside it: {'; '.join(problems)}."
        hint = "Export the model again; to change a shape, export with it."
        raise ArtifactError(message, hint=hint, path=str(artifact.path), problems=problems)
