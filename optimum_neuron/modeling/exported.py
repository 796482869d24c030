"""Load an exported folder: check everything in it against everything else, bind the weights, claim a core.

Nothing is compiled, except host code that this machine lacks; nothing in the folder is executed or unpickled.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from .. import env
from ..compiler.ir import Program
from ..compiler.lower.lower import Mode, lower
from ..compiler.memory import memory_need
from ..compiler.neff import check_target, open_neff
from ..compiler.package import WEIGHTS_MEMBER, read_program
from ..configuration import NEFF_FILE
from ..core import Choice
from ..errors import ArtifactError, ConfigError, refusal
from ..exporters.folder import FolderInfo, read_folder, verify_weights
from ..exporters.prepare import Prepared
from ..exporters.request import plain_options, structure_differences
from ..exporters.source import ModelSource, read_config
from ..hardware import resolve_instance, resolve_target
from ..options import check_known
from ..runtime.copies import claimed
from ..weights import Checkpoint, TensorSource, bind_weights
from ..weights.mapped import MappedFile

_METADATA = ("family", "stacks", "weight_sources", "placement")
"""What a NEFF says beside its program, see `exporters.build.Built.metadata`."""


def load_exported(
    folder: Path,
    asked: dict[str, Any],
    *,
    name: str,
    revision: str | None = None,
    config: Any = None,
    trust_remote_code: bool = False,
    host_code: Mode = "background",
) -> Prepared:
    """Load an exported folder.

    Args:
        folder: where it is.
        asked: options of the compile that the user named; they must be those of the export.
        name: what the user wrote, for messages and for those who find the core taken.
        revision: revision on the Hub that was asked for.
        config: a transformers configuration that the user expects to be in the folder.
        trust_remote_code: let code that came with the checkpoint read its configuration.
        host_code: when code for this machine is compiled that it lacks.

    Raises:
        ArtifactError: the folder is broken, or was compiled for another NeuronCore generation.
        ConfigError: an option contradicts the export.
        WeightsError: the weights are missing, altered, or do not fit.
        DeviceMemoryError, CoreBusyError: there is no room for it.
    """
    asked = plain_options({key: value for key, value in asked.items() if value is not None})
    info = read_folder(folder)
    asked = info.kind.plain(asked)
    check_known(asked, info.kind.config_class.option_names(), what=f"a model for {info.config.task}")
    _check_asked(info, asked, folder)
    verify_weights(folder, info.artifact)
    # The machine that is simulated now comes before the one of the export: an artifact moves between instances.
    instance_type = asked.get("instance_type") or env.instance_type() or info.config.instance_type
    target, instance = resolve_target(instance_type), resolve_instance(instance_type).value
    with open_neff(folder / NEFF_FILE) as neff:
        check_target(neff, target.value.name, target.value.core.generation)
        program, metadata = read_program(neff), dict(neff.metadata)
        inlined = neff.read(WEIGHTS_MEMBER) if WEIGHTS_MEMBER in neff.names else None
    _check_program(program, metadata, info, folder)
    saved = read_config(folder, trust_remote_code=trust_remote_code)
    _check_config(config, saved, folder, info.config.task)
    host_level = asked.get("optlevel", info.config.optlevel)
    prepared = Prepared(
        source=ModelSource(name=name, folder=folder, revision=revision, config=saved),
        config=dataclasses.replace(info.config, optlevel=host_level, instance_type=instance.name),
        target=target,
        neff=folder / NEFF_FILE,
        cache=Choice(value=folder / NEFF_FILE, reason="hit: loaded from the exported folder"),
        program=program,
        metadata=metadata,
        need=memory_need(program, lnc=target.value.chip.default_lnc),
        validation=info.validation,
    )
    prepared.tensors = _open_weights(folder, inlined)
    prepared.weights = bind_weights(program.weights, prepared.weight_sources, prepared.tensors.value)
    with claimed(instance, model=name) as claim:
        prepared.require_room(claim)
        prepared.host = lower(program, optlevel=host_level, mode=host_code)
        prepared.loaded = prepared.load(claim=claim)
    return prepared


def _open_weights(folder: Path, inlined: memoryview | None) -> Choice[TensorSource]:
    """The tensors of an export: those beside the NEFF, or inside it."""
    if inlined is None:
        return Choice(value=Checkpoint.open(folder), reason="mapped from the exported folder")
    origin = str(folder / NEFF_FILE)
    return Choice(value=Checkpoint([MappedFile(inlined, origin)], origin), reason="mapped from inside the NEFF")


def _check_asked(info: FolderInfo, asked: dict[str, Any], folder: Path) -> None:
    """Options of an exported folder are fixed; the host's effort and the instance size are not."""
    saved = info.config.to_dict()
    free = ("optlevel", "instance_type")
    wrong = [
        f"{key}={value!r}, compiled with {saved[key]!r}"
        for key, value in asked.items()
        if key not in free and _as_saved(saved[key]) != _as_saved(value)
    ]
    if wrong:
        raise ConfigError(
            refusal(
                asked=f"loading {folder} with other options",
                found="; ".join(wrong),
                why="shapes and arithmetic are fixed at export",
                do="leave the options out, or export the checkpoint again with them",
            )
        )


def _as_saved(value: Any) -> Any:
    """An option in the form that JSON has; a list of one size is that size."""
    if not isinstance(value, (list, tuple)):
        return value
    return value[0] if len(value) == 1 else list(value)


def _check_config(asked: Any, saved: Any, folder: Path, task: str) -> None:
    differences = [] if asked is None else structure_differences(asked, saved, task)
    if differences:
        raise ConfigError(
            refusal(
                asked=f"loading {folder} with another transformers configuration",
                found="; ".join(differences),
                why="the program was compiled from the folder's own",
                do="leave config out, or export the checkpoint again with it",
            )
        )


def _check_program(program: Program, metadata: dict[str, Any], info: FolderInfo, folder: Path) -> None:
    """A program that belongs to another `neuron_config.json` would fail in the middle of a generation."""
    problems = [f"its metadata has no {key}" for key in _METADATA if key not in metadata]
    try:
        problems += info.kind.problems(program, metadata, info.config)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        problems.append(f"its metadata is not what an export writes ({type(error).__name__}: {error})")
    if problems:
        raise ArtifactError(
            refusal(
                asked=f"loading {folder / NEFF_FILE}",
                found="; ".join(problems),
                why="the neuron_config.json beside it tells something else",
                do="export the model again; to change a shape, export with it",
            )
        )
