"""Downloads the one archive that a row of the catalogue names, with the ordinary client of its index.

Nothing of it is installed, and nothing is run before its hash is known. It knows nothing of what is in an archive.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import CacheError, ModelError, NeuronError, refusal
from .entry import Entry

_SHOWN_LINES = 15
_PIP = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input", "--disable-pip-version-check"]
_PIP += ["--progress-bar", "off"]


def tool_error(*, asked: str, output: str, why: str, do: str) -> NeuronError:
    """Return the error for a tool that failed, with the end of its output; a full disk is told apart."""
    shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:]) or "(it printed nothing)"
    if "No space left on device" in output:
        why, do = "the disk is full", "free some space, or point OPTIMUM_NEURON_HOME and TMPDIR to a larger disk"
        return CacheError(refusal(asked=asked, found=f"it failed with\n{shown}\n", why=why, do=do))
    return ModelError(refusal(asked=asked, found=f"it failed with\n{shown}\n", why=why, do=do))


def download(entry: Entry, destination: Path) -> Path:
    """Download the archive, as the index's client is configured on this machine.

    Args:
        entry: What to download.
        destination: An empty folder.

    Returns:
        The archive, not yet checked.

    Raises:
        ModelError: If the client is missing or fails (no network, no such version).
        CacheError: If the disk is full.
    """
    _require_client(entry)
    with tempfile.TemporaryDirectory() as work:
        command = _COMMANDS[entry.index](entry, Path(work))
        result = subprocess.run(
            command, cwd=destination, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    archives = [path for path in destination.iterdir() if path.is_file()]
    if result.returncode != 0 or len(archives) != 1:
        raise tool_error(
            asked=f"downloading {entry.requirement}",
            output=result.stdout + result.stderr,
            why="it comes from Debian's mirror deb.debian.org"
            if entry.index == "debian"
            else f"it comes from the package index that {_CLIENTS[entry.index]} is configured for",
            do="check that the mirror is reachable (network, and the proxy in https_proxy)"
            if entry.index == "debian"
            else "check that the index is reachable (network, proxy, `python -m pip config list`), or put the wheel "
            "into a folder and set PIP_FIND_LINKS to it",
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


_COMMANDS: dict[str, Callable[[Entry, Path], list[str]]] = {
    "pypi": _wheel,
    "pypi-source": _sdist,
    "npm": _npm,
    "debian": _debian,
}
_CLIENTS = {"pypi": "pip", "pypi-source": "pip", "npm": "npm"}


def _require_client(entry: Entry) -> None:
    client = _CLIENTS.get(entry.index)
    if client is None:
        return
    if client == "pip" and not _has_pip():
        found, do = f"{sys.executable} has no pip", "run `python -m ensurepip`"
    elif client != "pip" and shutil.which(client) is None:
        found, do = f"no command {client}", f"install {client}"
    else:
        return
    raise ModelError(
        refusal(
            asked=f"downloading {entry.requirement}",
            found=found,
            why=f"it is downloaded with {client}",
            do=do,
        )
    )


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
