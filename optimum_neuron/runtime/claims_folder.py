"""The folder in which processes agree on the cores of an instance, also where the home is read-only.

It is `<OPTIMUM_NEURON_HOME>/cores/<instance>`. If this user cannot write there, for example in a container with a
read-only file system, claims go to a private folder below the temporary one, and a warning says so once. Processes of
the same user with the same home share that folder. This module does not depend on locks and records; see
`core_files.py`.

    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime.claims_folder import claims_folder

    print(claims_folder(INSTANCES["inf2.xlarge"]))
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ..base import env
from ..errors import ConfigError
from ..files.private_folder import can_write, private_folder
from ..hardware import InstanceSpec, resolve_instance

logger = logging.getLogger(__name__)

_PRIVATE: dict[Path, Path] = {}
"""Private folder by shared folder. It stays the same if the home becomes writable: claims have been made in it."""


def claimed_clusters(environ: Mapping[str, str] = os.environ) -> list[InstanceSpec]:
    """Return the instances with a count, such as "2xtrn1.32xlarge", that have a folder of claims."""
    clusters = []
    for folder in sorted((env.home(environ) / "cores").glob("[0-9]*x*")):
        with contextlib.suppress(ConfigError):  # a folder of another name
            clusters.append(resolve_instance(folder.name, environ).value)
    return clusters


def claims_folder(instance: InstanceSpec, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder that has the claims on the cores of an instance; it may not exist yet."""
    shared = (env.home(environ) / "cores" / instance.name).absolute()
    if shared not in _PRIVATE:
        # Another user may have made the locks in a folder that both can write.
        if can_write(shared) and all(os.access(lock, os.W_OK) for lock in shared.glob("*.lock")):
            return shared
        is_told = any(other.parent == shared.parent for other in _PRIVATE)
        _PRIVATE[shared] = private_folder(shared)
        if not is_told:
            logger.warning(
                "Cannot write %s, so claims on simulated cores are kept in %s. Processes of other users, and those "
                "with another OPTIMUM_NEURON_HOME or temporary folder, do not see them.",
                shared.parent,
                _PRIVATE[shared].parent,
            )
    return _PRIVATE[shared]
