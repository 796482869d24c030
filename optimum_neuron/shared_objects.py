"""Shared objects in the user's cache: written so that a power cut leaves none that is broken, checked before loading.

A record, a small JSON file, names a library, its hash, and perhaps a function in it; one library can have several. A
library whose bytes have another hash is removed with its record and built again. What a process loads runs as its user,
so files and folders that others own or may write are not loaded from.

    publish(built, folder / "host.so", {folder / "sub_1.json": "sub_1"})
    found = find(folder / "sub_1.json")       # None: absent, or damaged and removed
    require_ours(found.library); ctypes.CDLL(found.library)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from . import env
from .compiler.atomic import replacing, write_bytes
from .errors import LoweringError
from .plain_json import parse_json

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedObject:
    """A library that is there and whole."""

    library: Path
    """The file."""
    function: str
    """The function that the record is about; empty: the whole library."""


def make_folder(folder: Path) -> None:
    """Make a folder, and missing ones above it, that only this user may enter."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def publish(built: Path, library: Path, records: Mapping[Path, str]) -> None:
    """Put a library in its place, durably, and then the records that lead to it.

    Args:
        built: a finished library, which is copied.
        library: where it goes.
        records: JSON files to write in the same folder, with the function that each is about.

    Raises:
        LoweringError: a file cannot be written.
    """
    data = built.read_bytes()
    with replacing(library, needed_bytes=len(data), error=LoweringError) as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o700)
    digest = hashlib.sha256(data).hexdigest()
    for record, function in records.items():
        fields = {"library": library.name, "sha256": digest, "function": function}
        write_bytes(record, json.dumps(fields).encode(), error=LoweringError)


def find(record: Path) -> SharedObject | None:
    """Return the library that a record names, after comparing its hash; remove both where they are damaged."""
    try:
        text = record.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    library: Path | None = None
    try:
        fields = parse_json(text)
        name, digest, function = (str(fields[key]) for key in ("library", "sha256", "function"))
        if name != os.path.basename(name):
            raise ValueError(f"the library is {name!r}")
        library = record.with_name(name)
        if hashlib.sha256(library.read_bytes()).hexdigest() != digest:
            raise ValueError("its bytes have another hash than was recorded")
    except (ValueError, KeyError, TypeError, OSError) as error:
        logger.warning("Host code %s is damaged (%s). It is removed and compiled again.", library or record, error)
        for path in (record, library):
            if path is not None:
                path.unlink(missing_ok=True)
        return None
    return SharedObject(library=library, function=function)


def require_ours(library: Path) -> None:
    """Refuse a library that another user could have written.

    The file, its folder, and the folders up to the package's own are checked; root may own them.

    Raises:
        LoweringError: another user owns one of them, or a group or others may write it; `details` has the paths.
    """
    root = env.home().absolute()
    chain = [library.absolute(), *library.absolute().parents]
    checked = chain[: chain.index(root) + 1] if root in chain else chain[:2]
    unsafe = {path: problem for path in checked if (problem := _problem(path.stat()))}
    if not unsafe:
        return
    names = [f"'{path}' ({problem})" for path, problem in unsafe.items()]
    mend = " ".join(f"'{path}'" for path in unsafe)
    if any("owned" in problem for problem in unsafe.values()):
        advice = f"Remove them, or take them over with `chown {os.geteuid()} {mend} && chmod go-w {mend}`"
    else:
        advice = f"Run `chmod go-w {mend}`"
    raise LoweringError(
        f"Host code is not loaded, because other users could have changed it: {', '.join(names)}. {advice}, "
        "or set OPTIMUM_NEURON_HOME to a folder of your own.",
        details={"library": str(library), "unsafe": {str(path): problem for path, problem in unsafe.items()}},
    )


def _problem(status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"owned by user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        return f"mode {stat.S_IMODE(status.st_mode):o}"
    return ""
