"""Write files that appear whole or not at all, and report full disks in bytes.

It does not depend on formats. A file is written next to its destination under a temporary name, flushed to the disk,
and renamed; after any failure the temporary file is removed and an older file stays unchanged.

    >>> import pathlib, tempfile
    >>> from optimum_neuron.files.atomic import write_bytes
    >>> from optimum_neuron.errors import CacheError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(pathlib.Path(folder, "a"), b"whole", error=CacheError)
    ...     pathlib.Path(folder, "a").read_bytes()
    b'whole'
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import ConfigError, NeuronError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that it was raised from, says that a disk, quota or size limit is exhausted."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _FULL:
            return True
        error = error.__cause__ or error.__context__
    return False


def disk_full(kind: type[NeuronError], *, path: Path, needed_bytes: int) -> NeuronError:
    """Make the error for a full disk; call it after the partial file is gone, because it reads the free bytes.

    Args:
        path: File or folder that was being written.
        needed_bytes: Size in bytes, or a lower bound if the size is not known yet.
    """
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free_bytes = shutil.disk_usage(folder).free
    return kind(
        f"The disk, quota, or file size limit is exhausted: {path} needs at least {needed_bytes:,} bytes, and {folder} "
        f"has {free_bytes:,} bytes free.",
        hint="Free some space (`optimum-cli neuron cache prune` empties the compile cache) or choose another folder.",
        needed_bytes=needed_bytes,
        free_bytes=free_bytes,
        path=str(path),
    )


@contextlib.contextmanager
def replacing(path: Path, *, needed_bytes: int, error: type[NeuronError], durable: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends well.

    Args:
        path: Destination; its folder exists.
        needed_bytes: Size of the whole file, for the error when the disk is full.
        error: Class of the error raised when the file cannot be written.
        durable: Wait until the disk has it, so that it survives a power cut.
    """
    temp = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temp, "xb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temp, path)
        if durable:
            sync_folder(path.parent)
    except OSError as problem:
        _discard(temp)
        if is_disk_full(problem):
            raise disk_full(error, path=path, needed_bytes=needed_bytes) from problem
        hint = "Check that the folder exists and that you may write to it."
        message = f"{path} cannot be written: {problem}."
        raise error(message, hint=hint, path=str(path), error=str(problem)) from problem
    except BaseException:
        _discard(temp)
        raise


def write_bytes(path: Path, data: bytes, *, error: type[NeuronError], durable: bool = True) -> None:
    """Write a small file atomically; see `replacing`."""
    with replacing(path, needed_bytes=len(data), error=error, durable=durable) as file:
        file.write(data)


def sync_folder(folder: Path) -> None:
    """Make renames inside a folder survive a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _discard(temp: Path) -> None:
    # On a read-only disk it was never created, and unlinking it would raise.
    if temp.exists():
        temp.unlink()


def can_write(folder: Path) -> bool:
    """Return whether files can be made in a folder or, if it is missing, whether it can be made.

    A file in place of a folder counts as writable, because it is a mistake: making the folder then raises an error.
    """
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    return not nearest.is_dir() or os.access(nearest, os.W_OK | os.X_OK)


def private_folder(shared: Path) -> Path:
    """Return the private folder in place of a shared one. Its parents are made, it may not exist yet."""
    user = os.geteuid()
    try:
        root = Path(tempfile.gettempdir()) / f"optimum-neuron-{user}"
        root.mkdir(mode=0o700, exist_ok=True)
        status = root.lstat()
    except OSError as error:
        message = f"{shared} cannot be written, and neither can the temporary folder: {error}."
        hint = "Set OPTIMUM_NEURON_HOME or TMPDIR to a folder that this user can write."
        raise ConfigError(message, hint=hint, folder=str(shared), error=str(error)) from error
    # Anyone can make a folder of that name in /tmp first, also as a link to a folder of this user.
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077:
        raise ConfigError(
            f"{shared} cannot be written, and {root} is not a folder that only this user can access.",
            hint=f"Set OPTIMUM_NEURON_HOME to a folder that this user can write, or remove {root}.",
            folder=str(shared),
            private_folder=str(root),
            owner=status.st_uid,
            mode=stat.filemode(status.st_mode),
        )
    return root / hashlib.sha256(os.fsencode(shared.parent)).hexdigest()[:16] / shared.name


class WorkFolder:
    """A temporary folder that goes with its last reference."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="optimum-neuron-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)
