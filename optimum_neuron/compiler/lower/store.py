"""The local host-code store: compiled functions by content, CPU, torch version and generator.

Nothing in it comes from an artifact: it is written only by `unit.compile_unit` on this machine. Losing it costs compile
time and nothing else.

    record = record_path("sub_...", "inductor", probe_cpu())
    stored = locate(record)      # None where it has to be compiled
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import logging
import shutil
import tempfile
from pathlib import Path

from ... import env
from ...shared_objects import SharedObject, find, make_folder, require_ours
from .choose import CpuFeatures, HostLevel
from .prepare import Preparation

logger = logging.getLogger(__name__)


@functools.cache
def generator_hash() -> str:
    """Return a hash that changes whenever the code that writes host code changes."""
    folder = Path(__file__).parent
    paths = sorted(path for suffix in ("*.py", "*.h", "*.cpp") for path in folder.rglob(suffix))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:8]


def record_path(
    subprogram: str,
    level: HostLevel,
    features: CpuFeatures,
    root: Path | None = None,
    preparations: tuple[Preparation, ...] = (),
) -> Path:
    """Return where the record of a subprogram's host code is, or would be, kept.

    Args:
        subprogram: name of the subprogram, which is the hash of its content.
        level: how it is compiled.
        features: CPU it is compiled for.
        root: folder of the store; the package's own cache folder by default.
        preparations: what it expects of its weights.
    """
    import torch

    folder = (root or env.home() / "host") / f"torch{torch.__version__.replace('+', '-')}-{features}"
    expected = json.dumps([one.to_list() for one in preparations])
    suffix = f"-{hashlib.sha256(expected.encode()).hexdigest()[:8]}" if preparations else ""
    return folder / f"{subprogram}-{level}-t{torch.get_num_threads()}-{generator_hash()}{suffix}.json"


def locate(record: Path) -> SharedObject | None:
    """Return the compiled function of a record, or None where it has to be compiled.

    Raises:
        LoweringError: other users could have changed it.
    """
    found = find(record)
    if found is None and _private:
        found = find(_private_record(record))
    if found is not None:
        require_ours(found.library)
    return found


def writable(record: Path) -> Path:
    """Return where a record can be written: in the store, or where that is read-only, in a folder of this process."""
    try:
        make_folder(record.parent)
        with tempfile.TemporaryFile(dir=record.parent):
            return record
    except OSError as error:
        if not _private:
            logger.warning(
                "Compiled host code is not kept, because %s cannot be written (%s). Set OPTIMUM_NEURON_HOME to a "
                "folder that you may write.",
                record.parent,
                error.strerror,
            )
            _private.append(Path(tempfile.mkdtemp(prefix="optimum-neuron-host-")))
            atexit.register(shutil.rmtree, _private[0], ignore_errors=True)
        private = _private_record(record)
        make_folder(private.parent)
        return private


_private: list[Path] = []
"""A folder that goes with the process, once it is needed."""


def _private_record(record: Path) -> Path:
    return _private[0] / record.parent.name / record.name
