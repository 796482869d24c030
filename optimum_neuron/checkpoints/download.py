"""Downloads the one archive that a row of the catalogue names, with the ordinary client of its index.

Nothing of it is installed, and nothing is run before its hash is known. It does not depend on the contents of an
archive.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import CacheError, ModelError, NeuronError
from .entry import Entry

_SHOWN_LINES = 15
_PIP = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"]
_PIP += ["--progress-bar", "off"]


def tool_error(problem: str, output: str, *, hint: str, **details: str) -> NeuronError:
    """Return the error for a tool that failed, with the end of its output; `CacheError` if the disk is full."""
    shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
    kind: type[NeuronError] = ModelError
    if "No space left on device" in output:
        kind, problem = CacheError, f"{problem}, because the disk is full"
        hint = "Free some space, or point OPTIMUM_NEURON_HOME and TMPDIR to a larger disk."
    return kind(f"{problem}:\n{shown or '(it printed nothing)'}", hint=hint, output=shown, **details)


def download(entry: Entry, destination: Path) -> Path:
    """Download the archive, as the index's client is configured on this machine.

    Returns:
        The archive in the destination, which was empty; it is not yet checked.

    Raises:
        ModelError: If the client is missing or fails (no network, no such version).
        CacheError: If the disk is full.
    """
    index = _INDEXES[entry.index]
    _require_client(entry, index.client)
    with tempfile.TemporaryDirectory() as work:
        command = index.command(entry, Path(work))
        result = subprocess.run(
            command, cwd=destination, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    archives = [path for path in destination.iterdir() if path.is_file()]
    if result.returncode != 0 or len(archives) != 1:
        raise tool_error(
            f"Downloading {entry.requirement} from {index.place} failed",
            result.stdout + result.stderr,
            hint=f"Check that it is reachable: {index.check}.",
            requirement=entry.requirement,
            place=index.place,
        )
    return archives[0]


def _wheel(entry: Entry, work: Path) -> list[str]:
    """A wheel, also of another platform than this one: it is data here."""
    tags = zip(("--python-version", "--platform"), entry.built_for, strict=False)
    return [*_PIP, "--only-binary", ":all:", *(word for tag in tags for word in tag), entry.requirement]


def _sdist(entry: Entry, work: Path) -> list[str]:
    """A source distribution. pip runs its build code to learn its name, but checks the hash first."""
    pinned = work / "requirements.txt"
    pinned.write_text(f"{entry.requirement} --hash=sha256:{entry.sha256}\n", "utf-8")
    return [*_PIP, "--no-binary", entry.package, "--require-hashes", "--requirement", str(pinned)]


def _npm(entry: Entry, work: Path) -> list[str]:
    return ["npm", "pack", "--ignore-scripts", "--silent", f"{entry.package}@{entry.version}"]


def _debian(entry: Entry, work: Path) -> list[str]:
    """Debian's mirrors are plain files; its own client needs lists that small machines have not."""
    source, _, package = entry.package.partition("/")
    file = f"{package}_{entry.version}_all.deb"
    url = f"https://deb.debian.org/debian/pool/main/{source[0]}/{source}/{file}"
    return [sys.executable, "-c", "import sys, urllib.request as r; r.urlretrieve(*sys.argv[1:])", url, file]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Index:
    command: Callable[[Entry, Path], list[str]]
    """Downloads an entry into the working folder; it may write only there."""
    client: str | None
    """The program that must be here; None where Python itself is enough."""
    place: str
    """Whom it asks."""
    check: str
    """Hint for a failed download."""


_PYPI = "the package index that pip is configured for"
_PYPI_CHECK = "network, proxy, `python -m pip config list`; or set PIP_FIND_LINKS to a folder with the file"
_INDEXES = {
    "pypi": _Index(command=_wheel, client="pip", place=_PYPI, check=_PYPI_CHECK),
    "pypi-source": _Index(command=_sdist, client="pip", place=_PYPI, check=_PYPI_CHECK),
    "npm": _Index(command=_npm, client="npm", place="the registry of npm", check="network, proxy, `npm config list`"),
    "debian": _Index(
        command=_debian, client=None, place="Debian's mirror deb.debian.org", check="network, the proxy in https_proxy"
    ),
}


def _require_client(entry: Entry, client: str | None) -> None:
    if client == "pip" and not _has_pip():
        problem, hint = f"{sys.executable} has no pip", "Run `python -m ensurepip`."
    elif client is not None and client != "pip" and shutil.which(client) is None:
        problem, hint = f"the command {client} is missing", f"Install {client}."
    else:
        return
    raise ModelError(f"{entry.requirement} cannot be downloaded: {problem}.", hint=hint, client=client)


def _has_pip() -> bool:
    """Return whether this Python has pip, without looking for the module.

    setuptools' import hook takes a search for the module as a sign that pip runs here, and from then on Inductor's
    import of setuptools fails in this process.
    """
    try:
        importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
