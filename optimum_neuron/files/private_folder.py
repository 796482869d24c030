"""A folder below the temporary one, in place of a shared folder that this user cannot write.

Processes of one user agree on it, and other users cannot write it.

    from pathlib import Path
    from optimum_neuron.files.private_folder import private_folder

    print(private_folder(Path("/read/only/cores/inf2.xlarge")))
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from ..errors import ConfigError


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
