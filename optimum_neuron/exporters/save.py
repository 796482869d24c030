"""Write an exported folder so that it appears whole or is no export, whatever happens in between.

Files are written into a hidden folder inside the output and moved when all are there, the marker last. Leftovers of a
killed process are removed by the next writer. See `folder.py` for the files of an exported folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..compiler import COMPILER_VERSION, write_program
from ..errors import CacheError, ConfigError
from ..files.records import file_hash
from ..options.configuration import CONFIG_FILE, NEFF_FILE
from ..sources import COPIED, ModelSource, copy_files, with_quantization
from ..version import __version__
from ..weights import SINGLE_FILE, pack_checkpoint
from .folder import FOLDER_VERSION, public_facts
from .prepared import Prepared

_LOCK = "writing.lock"
"""In a folder of files that are not published yet; held while its writer lives."""


def save_folder(prepared: Prepared, output: Path) -> int:
    """Write an exported folder; return its size in bytes. Files appear whole, the marker last."""
    check_output(prepared.source, output)
    try:
        output.mkdir(parents=True, exist_ok=True)
        with _work_folder(output) as work:
            _write_files(prepared, work)
            _publish(work, output)
    except OSError as error:
        if isinstance(error, CacheError):
            raise
        message = f"The export cannot be written to {output}: {error}"
        raise CacheError(message, hint="Free space or choose another folder.", folder=str(output)) from error
    return sum(path.stat().st_size for path in output.iterdir() if path.is_file())


@contextlib.contextmanager
def _work_folder(output: Path) -> Iterator[Path]:
    """A folder to write in; leftovers of killed processes are removed."""
    for folder in output.glob(".partial-*"):
        try:
            with FileLock(folder / _LOCK, timeout=0):
                pass
        except Timeout:
            continue  # its writer lives
        shutil.rmtree(folder)
    with tempfile.TemporaryDirectory(dir=output, prefix=".partial-") as work, FileLock(Path(work) / _LOCK):
        yield Path(work)


def check_output(source: ModelSource, output: Path) -> None:
    """Reject an output folder that is not an export of this package."""
    weights = sorted(path.name for pattern in ("*.safetensors", "*.bin") for path in output.glob(pattern))
    if output.resolve() == source.folder.resolve():
        reason, problem = "checkpoint", "is the folder of the checkpoint itself"
    elif output.exists() and not output.is_dir():
        reason, problem = "file", "is a file"
    elif weights and not (output / NEFF_FILE).exists():
        reason, problem = "weights", f"holds {weights[0]}, but is not an export"
    else:
        return
    hint = "Choose another output folder."
    raise ConfigError(f"The output {output} {problem}.", hint=hint, output=str(output), reason=reason)


def _write_files(prepared: Prepared, work: Path) -> None:
    source, config, compiled = prepared.source, prepared.config, prepared.artifact
    # Code of the checkpoint, if its configuration needs it; it never runs without trust_remote_code.
    code = ("*.py",) if hasattr(source.config, "auto_map") else ()
    copy_files(source.folder, work, (*COPIED, *code))
    # The weights next to it are plain, whatever their format in the checkpoint.
    model_config = json.loads(with_quantization(source.config, None).to_json_string(use_diff=True))
    # The dtype of the saved weights.
    model_config["dtype"] = config.torch_dtype
    model_config["neuron"] = public_facts(config, source.config.model_type, source.random_weights)
    (work / "config.json").write_text(json.dumps(model_config, indent=2, sort_keys=True) + "\n")
    artifact: dict[str, Any] = {
        "optimum_neuron_version": __version__,
        "compiler_version": COMPILER_VERSION,
        "checkpoint": source.name,
        "revision": source.revision,
        "placed_share": compiled.metadata["placement"],
        "validation": [error.to_json() for error in prepared.validation],
    }
    if source.random_weights:
        artifact["random_weights"] = list(source.random_weights)
    if prepared.quality is not None:
        artifact["quality"] = prepared.quality.to_dict()
    neff, weights = work / NEFF_FILE, work / SINGLE_FILE
    inline = config.inline_weights_to_neff and prepared.bound is not None
    if prepared.bound is not None:
        tensors, dtype = prepared.bound.tensors.value, config.torch_dtype
        size = pack_checkpoint(tensors, compiled.program.weights, compiled.weight_sources, weights, dtype=dtype)
        name = None if inline else SINGLE_FILE
        artifact["weights"] = {"file": name, "size_bytes": size, "sha256": file_hash(weights)}
    if inline:
        write_program(
            neff,
            compiled.program,
            name=source.config.model_type,
            target=prepared.target.value,
            metadata=compiled.metadata,
            weights=weights,
        )
        weights.unlink()
    else:
        shutil.copyfile(compiled.path, neff)
    artifact["neff_sha256"] = file_hash(neff)
    marker = {"version": FOLDER_VERSION, "neuron": config.to_dict(), "artifact": artifact}
    (work / CONFIG_FILE).write_text(json.dumps(marker, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _publish(work: Path, output: Path) -> None:
    """Move the files over; the marker is taken away first and put back last."""
    (output / CONFIG_FILE).unlink(missing_ok=True)
    if not (work / SINGLE_FILE).exists():
        (output / SINGLE_FILE).unlink(missing_ok=True)
    files = [path for path in work.rglob("*") if path.is_file() and path.name != _LOCK]
    # The NEFF first: a folder with it is known as ours, see `check_output`.
    for path in sorted(files, key=lambda path: (path.name == CONFIG_FILE, path.name != NEFF_FILE)):
        target = output / path.relative_to(work)
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
