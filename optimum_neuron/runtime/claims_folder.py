"""The folder in which processes agree on the cores of an instance, also where the home is read-only.

It is `<OPTIMUM_NEURON_HOME>/cores/<instance>`. If this user cannot write there, for example in a container with a
read-only file system, claims go to a private folder below the temporary one, and a warning says so once. Processes of
the same user with the same home share that folder. This module knows nothing of locks and records; see `core_files.py`.

    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime.claims_folder import claims_folder

    print(claims_folder(INSTANCES["inf2.xlarge"]))
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .. import env
from ..errors import ConfigError
from ..hardware import InstanceSpec

logger = logging.getLogger(__name__)

_PRIVATE: dict[Path, Path] = {}
"""Private folder by shared folder. It stays the same if the home becomes writable: claims have been made in it."""
_WARNED: set[Path] = set()


def claims_folder(instance: InstanceSpec, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that has the claims on the cores of an instance; it may not exist yet.

    Raises:
        ConfigError: neither the home nor the temporary folder can be written.
    """
    shared = (env.home(environ) / "cores" / instance.name).absolute()
    if shared not in _PRIVATE:
        if _is_writable(shared):
            return shared
        _PRIVATE[shared] = _private_folder(shared)
        _warn(shared.parent, _PRIVATE[shared].parent)
    return _PRIVATE[shared]


def _is_writable(folder: Path) -> bool:
    """Whether claims can be made in a folder or, if it is missing, whether it can be made.

    A file in place of a folder counts as writable, because it is a mistake: making the folder then raises an error.
    """
    nearest = next(path for path in (folder, *folder.parents) if os.path.exists(path))
    if not nearest.is_dir():
        return True
    if not os.access(nearest, os.W_OK | os.X_OK):
        return False
    # Another user may have made the locks in a folder that both can write.
    return nearest != folder or all(os.access(lock, os.W_OK) for lock in folder.glob("*.lock"))


def _private_folder(shared: Path) -> Path:
    """Make the folder of this user that nobody else can write, and name the one of a shared folder in it."""
    user = os.geteuid()
    try:
        root = Path(tempfile.gettempdir()) / f"optimum-neuron-{user}"
        root.mkdir(mode=0o700, exist_ok=True)
        found = root.lstat()
    except OSError as error:
        raise ConfigError(
            f"The claims folder {shared} cannot be written, and neither can the temporary folder: {error}. "
            "Set OPTIMUM_NEURON_HOME or TMPDIR to a folder that this user can write.",
            details={"folder": str(shared), "error": str(error)},
        ) from error
    # Anyone can make a folder of that name in /tmp first, also as a link to a folder of this user.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077:
        raise ConfigError(
            f"The claims folder {shared} cannot be written, and {root} is not a folder that only this user can access. "
            f"Set OPTIMUM_NEURON_HOME to a folder that this user can write, or remove {root}.",
            details={
                "folder": str(shared),
                "private_folder": str(root),
                "owner": found.st_uid,
                "mode": stat.filemode(found.st_mode),
            },
        )
    return root / hashlib.sha256(os.fsencode(shared.parent)).hexdigest()[:16] / shared.name


def _warn(shared: Path, private: Path) -> None:
    if shared in _WARNED:
        return
    _WARNED.add(shared)
    logger.warning(
        "Cannot write %s, so claims on simulated cores are kept in %s. Processes of other users, and processes with "
        "another OPTIMUM_NEURON_HOME or temporary folder, do not see them.",
        shared,
        private,
    )
