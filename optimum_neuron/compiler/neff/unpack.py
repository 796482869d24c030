"""Extract a NEFF into a folder that appears whole or not at all.

It relies on `open_neff` for the safety of names: every member is a regular file below the folder.
"""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from ...errors import ArtifactError
from ...files.atomic import disk_full, is_disk_full
from .document import DOCUMENT_NAME, HEADER_SIZE_BYTES
from .reader import Neff, open_neff


def unpack(neff_path: str | Path, folder: str | Path) -> list[Path]:
    """Extract all members, `neff.json` included.

    Args:
        neff_path: The NEFF; it is verified first.
        folder: A new or an empty folder.

    Returns:
        The files written.

    Raises:
        ArtifactError: The NEFF is damaged or unsafe, the folder is not empty, or it cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder} is not an empty folder.", hint="Name a new folder.", path=str(folder))
    temp = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    with open_neff(neff_path) as neff:
        try:
            names = _extract(neff, temp)
            os.replace(temp, folder)
        except OSError as error:
            shutil.rmtree(temp, ignore_errors=True)
            if is_disk_full(error):
                needed_bytes = HEADER_SIZE_BYTES + neff.header.data_size
                raise disk_full(ArtifactError, path=folder, needed_bytes=needed_bytes) from error
            message = f"{folder} cannot be written: {error}."
            raise ArtifactError(message, hint="Choose another folder.", path=str(folder)) from error
        except BaseException:
            shutil.rmtree(temp, ignore_errors=True)
            raise
    return [folder / name for name in names]


def _extract(neff: Neff, folder: Path) -> list[str]:
    names = sorted([*neff.names, DOCUMENT_NAME])
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            file.write(neff.read(name))
    return names
