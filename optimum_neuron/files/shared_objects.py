"""Shared objects in the user's cache: written so that a power cut leaves no broken file, checked before loading.

A record, a small JSON file, names a library, its hash, and perhaps a function in it; one library can have several. A
library whose bytes have another hash is removed with its record and built again. A loaded library runs as the user, so
files and folders that others own or may write are not loaded from. In place of a folder that cannot be written, new
libraries go to a private one (`private_folder.py`).

    record = writable(folder / "sub_1.json")
    publish(built, record.with_name("host.so"), {record: "sub_1"})
    shared = find(folder / "sub_1.json")      # None: absent, or damaged and removed
    require_ours(shared.library); ctypes.CDLL(shared.library)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ..base import env
from ..errors import LoweringError
from .atomic import replacing, write_bytes
from .plain_json import parse_json
from .private_folder import can_write, private_folder

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedObject:
    """A library that is there and whole."""

    library: Path
    function: str
    """The function of the record; empty: the whole library."""


def make_folder(folder: Path) -> None:
    """Make a folder, and missing parents, that only this user may enter."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def publish(built: Path, library: Path, records: Mapping[Path, str]) -> None:
    """Write a library durably, and then the records that point to it.

    Args:
        records: JSON files to write in the same folder, each with its function.
    """
    data = built.read_bytes()
    make_folder(library.parent)
    with replacing(library, needed_bytes=len(data), error=LoweringError) as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o700)
    digest = hashlib.sha256(data).hexdigest()
    for record, function in records.items():
        fields = {"library": library.name, "sha256": digest, "function": function}
        write_bytes(record, json.dumps(fields).encode(), error=LoweringError)


def writable(record: Path) -> Path:
    """Return where a record can be written: in its place, or in a private folder if its own cannot be written."""
    if can_write(record.parent):
        return record
    private = _private(record)
    _warn(record.parent, private.parent)
    return private


def _private(record: Path) -> Path:
    return private_folder(record.parent.absolute()) / record.name


@functools.cache
def _warn(folder: Path, private: Path) -> None:
    hint = "Set OPTIMUM_NEURON_HOME to a folder that you may write."
    logger.warning("Cannot write %s, so compiled host code is kept in %s. %s", folder, private, hint)


def find(record: Path) -> SharedObject | None:
    """Return the library that a record names, after comparing its hash; remove both where they are damaged."""
    shared_object = _find(record)
    if shared_object is None and not can_write(record.parent):
        shared_object = _find(_private(record))
    return shared_object


def _find(record: Path) -> SharedObject | None:
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
    """Check that no other user could have written a library.

    The file, its folder, and the folders up to the package's own are checked; root may own them.
    """
    root = env.home().absolute()
    chain = [library.absolute(), *library.absolute().parents]
    checked = chain[: chain.index(root) + 1] if root in chain else chain[:2]
    unsafe = {path: problem for path in checked if (problem := _problem(path.stat()))}
    if not unsafe:
        return
    names = [f"'{path}' ({problem})" for path, problem in unsafe.items()]
    paths = " ".join(f"'{path}'" for path in unsafe)
    if any("owned" in problem for problem in unsafe.values()):
        command = f"Remove them, or take them over with `chown {os.geteuid()} {paths} && chmod go-w {paths}`"
    else:
        command = f"Run `chmod go-w {paths}`"
    message = f"Host code is not loaded, because other users could have changed it: {', '.join(names)}."
    hint = f"{command}, or set OPTIMUM_NEURON_HOME to a folder of your own."
    raise LoweringError(
        message, hint=hint, library=str(library), unsafe={str(path): problem for path, problem in unsafe.items()}
    )


def _problem(status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return f"owned by user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        return f"mode {stat.S_IMODE(status.st_mode):o}"
    return ""
