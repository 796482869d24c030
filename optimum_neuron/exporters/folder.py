"""The exported folder: what is in it, how it is written whole, how it is read.

model.neuron         NEFF with the compiled program (and the weights, if inlined)
model.safetensors    weights under the checkpoint's own names; any reader can load them
config.json, generation_config.json, tokenizer files     as in the checkpoint
neuron_config.json   shapes, flags, versions, hashes; written last, so that without it a folder is no export
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .. import env
from ..compiler.package import write_program
from ..compiler.version import COMPILER_VERSION
from ..configuration import CONFIG_FILE, NeuronConfig
from ..errors import ArtifactError, CacheError, ConfigError, FormatVersionError, WeightsError, refusal
from ..version import __version__
from ..weights import pack_checkpoint
from ..weights.checkpoint import SINGLE_FILE
from .prepare import Prepared

NEFF_FILE = "model.neuron"
"""Name of the compiled program in an exported folder, as users' tools look for it."""

FOLDER_VERSION = 1
"""Raised when an exported folder can no longer be read by older code."""

_COPIED = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "chat_template*",
    "generation_config.json",
    "preprocessor_config.json",
    "LICENSE*",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderInfo:
    """What `neuron_config.json` says."""

    config: NeuronConfig
    """Shapes and flags."""
    artifact: dict[str, Any]
    """Versions, hashes, sizes, and the comparison with the original."""


def save_folder(prepared: Prepared, output: Path) -> int:
    """Write an exported folder; return its size in bytes. Files appear whole, the marker last.

    Raises:
        ConfigError: the output is the checkpoint's own folder, or a file.
        CacheError: the disk is full or the folder cannot be written; a previous export there is gone only if its
            replacement was complete.
    """
    _check_output(prepared, output)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output, prefix=".partial-") as work:
            _write_files(prepared, Path(work))
            _publish(Path(work), output)
    except OSError as error:
        if isinstance(error, CacheError):
            raise
        raise CacheError(
            refusal(
                asked=f"writing the export to {output}",
                found=str(error),
                why="the folder could not be written",
                do="free space or choose another folder",
            )
        ) from error
    return sum(path.stat().st_size for path in output.iterdir() if path.is_file())


def _check_output(prepared: Prepared, output: Path) -> None:
    if output.resolve() == prepared.source.folder.resolve():
        raise ConfigError(
            refusal(
                asked=f"export into {output}",
                found="the folder of the checkpoint itself",
                why="its weights would be replaced",
                do="choose another output folder",
            )
        )
    if output.exists() and not output.is_dir():
        raise ConfigError(
            refusal(
                asked=f"export into {output}",
                found="a file of that name",
                why="an export is a folder",
                do="choose another output folder",
            )
        )


def _write_files(prepared: Prepared, work: Path) -> None:
    for pattern in _COPIED:
        for path in prepared.source.folder.glob(pattern):
            if path.is_file():
                shutil.copyfile(path, work / path.name)
    prepared.source.config.to_json_file(work / "config.json", use_diff=True)
    artifact: dict[str, Any] = {
        "optimum_neuron_version": __version__,
        "compiler_version": COMPILER_VERSION,
        "checkpoint": prepared.source.name,
        "revision": prepared.source.revision,
        "validation": [error.to_dict() for error in prepared.validation],
    }
    inline = prepared.config.inline_weights_to_neff
    if prepared.tensors is not None:
        weights = work / SINGLE_FILE
        size = pack_checkpoint(
            prepared.tensors.value,
            prepared.program.weights,
            prepared.weight_sources,
            weights,
            dtype=prepared.config.torch_dtype,
        )
        artifact["weights"] = {
            "file": None if inline else SINGLE_FILE,
            "size_bytes": size,
            "sha256": file_hash(weights),
        }
    if inline and prepared.tensors is not None:
        write_program(
            work / NEFF_FILE,
            prepared.program,
            name=prepared.source.config.model_type,
            target=prepared.target.value,
            metadata=prepared.metadata,
            weights=work / SINGLE_FILE,
        )
        (work / SINGLE_FILE).unlink()
    else:
        shutil.copyfile(prepared.neff, work / NEFF_FILE)
    artifact["neff_sha256"] = file_hash(work / NEFF_FILE)
    marker = {"version": FOLDER_VERSION, "neuron": prepared.config.to_dict(), "artifact": artifact}
    (work / CONFIG_FILE).write_text(json.dumps(marker, indent=2, sort_keys=True) + "\n")


def _publish(work: Path, output: Path) -> None:
    """Move the files over; the marker is taken away first and put back last."""
    (output / CONFIG_FILE).unlink(missing_ok=True)
    if not (work / SINGLE_FILE).exists():
        (output / SINGLE_FILE).unlink(missing_ok=True)
    for path in sorted(work.iterdir(), key=lambda p: p.name == CONFIG_FILE):
        os.replace(path, output / path.name)


def is_export(folder: Path) -> bool:
    """Whether a folder is a complete export."""
    return (folder / CONFIG_FILE).is_file() and (folder / NEFF_FILE).is_file()


def read_folder(folder: Path) -> FolderInfo:
    """Read and check the marker of an exported folder; weights are verified by `verify_weights`.

    Raises:
        ArtifactError: the folder is no export, or its NEFF is not the one that was exported.
        FormatVersionError: it was written by a newer version.
    """
    if not is_export(folder):
        missing = [name for name in (CONFIG_FILE, NEFF_FILE) if not (folder / name).is_file()]
        raise ArtifactError(
            refusal(
                asked=f"exported folder {folder}",
                found=f"{', '.join(missing)} missing",
                why="an export has both, and the first is written last",
                do="export the model again; a killed export leaves a folder like this",
            )
        )
    try:
        data = json.loads((folder / CONFIG_FILE).read_text())
        version, neuron, artifact = int(data["version"]), dict(data["neuron"]), dict(data["artifact"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            refusal(
                asked=f"reading {folder / CONFIG_FILE}",
                found=f"{type(error).__name__}: {error}",
                why="it is not what an export writes",
                do="export the model again",
            )
        ) from error
    if version > FOLDER_VERSION:
        raise FormatVersionError(
            refusal(
                asked=f"reading {folder}",
                found=f"folder version {version}, this version reads {FOLDER_VERSION}",
                why="it was written by a newer version",
                do="upgrade optimum-neuron-sim or export the model again",
            )
        )
    if env.validate_hash() and file_hash(folder / NEFF_FILE) != artifact["neff_sha256"]:
        raise ArtifactError(
            refusal(
                asked=f"loading {folder / NEFF_FILE}",
                found="its sha256 differs from the export's",
                why="the file was changed or damaged",
                do="export the model again",
            )
        )
    return FolderInfo(config=NeuronConfig.from_dict(neuron), artifact=artifact)


def verify_weights(folder: Path, artifact: dict[str, Any]) -> None:
    """Compare the weights with their recorded hash; NEURON_RT_VALIDATE_HASH=0 skips it.

    Raises:
        WeightsError: the file is missing or differs.
    """
    recorded = artifact.get("weights")
    if recorded is None or recorded["file"] is None:
        return
    path = folder / SINGLE_FILE
    if not path.is_file():
        raise WeightsError(
            refusal(
                asked=f"weights of {folder}",
                found=f"{SINGLE_FILE} is missing",
                why="the program was exported without weights inside",
                do="copy the file beside model.neuron or export the model again",
            )
        )
    if env.validate_hash() and file_hash(path) != recorded["sha256"]:
        raise WeightsError(
            refusal(
                asked=f"weights {path}",
                found="their sha256 differs from the export's",
                why="the file was changed or damaged since",
                do="export again, or pass a fine-tuned checkpoint to replace_weights()",
            )
        )


def file_hash(path: Path) -> str:
    """sha256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
