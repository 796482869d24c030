"""The local host-code store: compiled functions by content, CPU, torch version and generator.

Nothing in it comes from an artifact: it is written only by `unit.compile_unit` on this machine. Losing it costs compile
time and nothing else.

    record = record_path("sub_...", "inductor", probe_cpu())
    stored = locate(record)      # None where it has to be compiled
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import torch

from ...base import env
from ...files.records import hash_of_sources
from ...files.shared_objects import SharedObject, find, require_ours
from .choose import CpuFeatures, HostLevel
from .prepare import Preparation


@functools.cache
def generator_hash() -> str:
    """Return a hash that changes whenever the code that writes host code changes."""
    return hash_of_sources(Path(__file__).parent, ["."], suffixes=(".py", ".h", ".cpp"))[:8]


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
        root: folder of the store; the package's own cache folder by default.
        preparations: Preparations that it expects of its weights.
    """
    folder = (root or env.home() / "host") / f"torch{torch.__version__.replace('+', '-')}-{features}"
    expected = json.dumps([one.to_list() for one in preparations])
    suffix = f"-{hashlib.sha256(expected.encode()).hexdigest()[:8]}" if preparations else ""
    return folder / f"{subprogram}-{level}-t{torch.get_num_threads()}-{generator_hash()}{suffix}.json"


def locate(record: Path) -> SharedObject | None:
    """Return the compiled function of a record, or None where it has to be compiled."""
    stored = find(record)
    if stored is not None:
        require_ours(stored.library)
    return stored
