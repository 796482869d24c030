"""The exported folder: its files, and how it is read and checked. `save.py` writes it.

model.neuron         NEFF with the compiled program (and the weights, if inlined)
model.safetensors    weights under the checkpoint's own names; any reader can load them
config.json, generation_config.json, tokenizer files     as in the checkpoint; config.json has shapes and flags under
                     "neuron" too, for tools that look there (`public_facts`); nothing is read from that
neuron_config.json   shapes, flags, versions, hashes; written last, so that without it a folder is no export
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base import env
from ..compiler import COMPILER_VERSION
from ..errors import ArtifactError, FormatVersionError, WeightsError, nearest
from ..files.plain_json import parse_json, read_object
from ..files.records import file_hash
from ..kinds import KINDS, Kind, kind_of
from ..options.configuration import CONFIG_FILE, NEFF_FILE, CompileConfig, is_export
from ..options.peer_attributes import with_origin
from ..sources import TASKS
from ..weights import SINGLE_FILE
from .validation import OutputError
from .vendor_folder import refuse_vendor_export

FOLDER_VERSION = 1
"""Raised when an exported folder can no longer be read by older code."""

_AGAIN = "Export the model again."
_RECORDED = ("optimum_neuron_version", "compiler_version", "checkpoint", "revision", "validation", "neff_sha256")
"""Keys of `artifact` that every export writes."""


_RENAMED = {
    "ResolvedAudioTextConfig": "NeuronAudioTextConfig",
    "ResolvedDiffusionConfig": "NeuronDiffusionConfig",
    "ResolvedEncoderConfig": "NeuronEncoderConfig",
    "ResolvedImageTextConfig": "NeuronImageTextConfig",
    "ResolvedNeuronConfig": "NeuronConfig",
    "ResolvedSeq2SeqConfig": "NeuronSeq2SeqConfig",
    "ResolvedSpeechConfig": "NeuronSpeechSeq2SeqConfig",
}
"""Classes that saved configurations of models name, and that complete configurations no longer have."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderInfo:
    """The content of `neuron_config.json`."""

    kind: Kind
    config: CompileConfig
    artifact: dict[str, Any]
    """Versions, hashes, sizes, and the comparison with the reference model."""
    validation: list[OutputError]
    """That comparison, parsed."""


def read_folder(folder: Path) -> FolderInfo:
    """Read and check the marker of an exported folder; weights are verified by `verify_weights`."""
    if not is_export(folder):
        refuse_vendor_export(folder)
        if parts := sorted(path.parent.name for path in folder.glob(f"*/{NEFF_FILE}")):
            message = f"{folder} has several compiled models: {', '.join(parts)}."
            raise ArtifactError(message, hint=f"Pass the folder of one, such as {folder / parts[0]}.", parts=parts)
        missing = [name for name in (CONFIG_FILE, NEFF_FILE) if not (folder / name).is_file()]
        message = f"{folder} is not a complete export: {', '.join(missing)} missing."
        raise ArtifactError(message, hint=_AGAIN, missing=missing)
    try:
        data = parse_json((folder / CONFIG_FILE).read_bytes())
        _check_version(folder, int(data["version"]))
        neuron, artifact = dict(data["neuron"]), dict(data["artifact"])
        if neuron["task"] not in TASKS:
            raise ValueError(f"task {neuron['task']!r} is unknown{nearest(str(neuron['task']), TASKS)}")
        kind = kind_of(neuron["task"], _model_type(folder))
        config = kind.config_class.from_dict(neuron).require_complete()
        with_origin(config, artifact.get("checkpoint"), artifact.get("revision"))
        if missing := [key for key in _RECORDED if key not in artifact]:
            raise KeyError(", ".join(missing))
        if not _is_complete(artifact.get("weights")):
            raise ValueError("artifact.weights has no file, size_bytes, and sha256")
        validation = [OutputError.from_dict(row) for row in artifact["validation"]]
    except FormatVersionError:
        raise
    except (AttributeError, LookupError, OSError, OverflowError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        message = f"{folder / CONFIG_FILE} was not written by an export: {problem}"
        raise ArtifactError(message, hint=_AGAIN, file=str(folder / CONFIG_FILE), error=problem) from error
    expected = artifact["neff_sha256"]
    if env.validate_hash() and (actual := file_hash(folder / NEFF_FILE)) != expected:
        message = f"{folder / NEFF_FILE} was changed or damaged: its sha256 differs."
        raise ArtifactError(message, hint=_AGAIN, file=str(folder / NEFF_FILE), expected=expected, actual=actual)
    return FolderInfo(kind=kind, config=config, artifact=artifact, validation=validation)


def read_bare_config(folder: Path) -> CompileConfig | None:
    """Return the configuration that `CompileConfig.save_pretrained` wrote; None: there is none, or an export."""
    if not (folder / CONFIG_FILE).is_file() or (folder / NEFF_FILE).exists():
        return None
    data = read_object(folder / CONFIG_FILE)
    classes = {row.config_class.__name__: row.config_class for row in KINDS.values()}
    name = str(data.get("config_class"))
    config_class = classes.get(_RENAMED.get(name, name))
    if config_class is None or not isinstance(data.get("neuron"), dict) or not isinstance(data.get("version"), int):
        return None
    _check_version(folder, data["version"])
    return config_class.from_dict(data["neuron"])


def _is_complete(recorded: Any) -> bool:
    """Return whether the record of the weights has the form that an export writes; None stands for no weights."""
    kinds = {"file": (str, type(None)), "size_bytes": (int,), "sha256": (str,)}
    return recorded is None or all(key in recorded and isinstance(recorded[key], kinds[key]) for key in kinds)


def _model_type(folder: Path) -> str:
    """The architecture, or an empty string if `config.json` is broken, which a later step reports."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return str(parse_json((folder / "config.json").read_bytes()).get("model_type"))
    return ""


def _check_version(folder: Path, version: int) -> None:
    if version > FOLDER_VERSION:
        message = f"{folder} has format version {version}, but this version of the package reads {FOLDER_VERSION}."
        hint = "Upgrade optimum-neuron-sim or export the model again."
        raise FormatVersionError(message, hint=hint, version=version, supported=FOLDER_VERSION)


def verify_weights(folder: Path, artifact: dict[str, Any]) -> None:
    """Compare the weights with their recorded hash; NEURON_RT_VALIDATE_HASH=0 skips it."""
    recorded = artifact.get("weights")
    if recorded is None:
        message = f"{folder} was exported from a configuration without weights."
        raise WeightsError(message, hint="Export a checkpoint that has weights.", folder=str(folder))
    if recorded["file"] is None:
        return
    path = folder / SINGLE_FILE
    if not path.is_file():
        hint = f"Copy it beside {NEFF_FILE} or export the model again."
        raise WeightsError(f"{SINGLE_FILE} is missing in {folder}.", hint=hint, folder=str(folder), missing=SINGLE_FILE)
    expected = recorded["sha256"]
    if env.validate_hash() and (actual := file_hash(path)) != expected:
        message = f"{path} was changed or damaged after the export: its sha256 differs."
        hint = "Export again, or pass a fine-tuned checkpoint to replace_weights()."
        raise WeightsError(message, hint=hint, file=str(path), expected=expected, actual=actual)


def public_facts(config: CompileConfig, model_type: str, random_weights: Sequence[str] = ()) -> dict[str, Any]:
    """Return compiled shapes as `static_<axis>`, flags, dtypes, and the compiler.

    Args:
        config: complete configuration of a compile.
        model_type: architecture, as transformers names it.
        random_weights: weights that are random numbers, because the checkpoint has none.
    """
    shapes = config.static_shapes
    flags = {name: value for name, value in config.to_dict().items() if name not in shapes and value is not None}
    del flags["torch_dtype"]
    flags.pop("calls", None)  # shapes of every call of a component of a pipeline: for the loader only
    return {
        **{f"static_{axis}": size for axis, size in shapes.items()},
        "tensor_parallel_size": 1,
        **flags,
        "int_dtype": "int64",
        "float_dtype": config.torch_dtype,
        "model_type": model_type,
        "compiler_type": "neuronx-cc (simulated)",
        "compiler_version": COMPILER_VERSION,
        **({"random_weights": list(random_weights)} if random_weights else {}),
    }
