"""Counts of a configuration, apart from machines and times: counted once, kept on disk, and timed for each request.

A decoder is known by its sizes, which every batch, length, and degree of tensor parallelism shares. A single-pass model
is known by one graph of fixed shapes. Timing either needs neither torch nor transformers.

    known = find_counts(folder, request, machine)
    if known.counts is not None:
        known.counts.estimate("llama", request, machine)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base import env
from ..base.core import Choice
from ..errors import ConfigError
from ..files.plain_json import T, from_plain, to_plain
from ..files.records import Record, Records, hash_of_sources, installed_versions
from ..version import __version__
from .decoders import DecoderCounts
from .graphs import RunCounts
from .machine import Machine
from .request import EstimateRequest

Counts = DecoderCounts | RunCounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """Cached counts of a checkpoint, if there are any, and the files for new ones."""

    counts: Counts | None
    reason: str
    """Where they are, or why there are none."""
    files: Mapping[type[Counts], CountFile]
    """File for each class of counts; empty if counts are not kept."""

    def keep(self, name: str, counts: Any) -> Choice[str] | None:
        """Write new counts, and say where; None for counts of other classes, which are never kept."""
        if not isinstance(counts, Counts):
            return None
        file = self.files.get(type(counts))
        kept = "not recorded" if file is None else file.write(name, counts)
        return Choice(value="counted", reason=f"{self.reason}; {kept}")


def find_counts(folder: Path, request: EstimateRequest, machine: Machine) -> Known:
    """Look for the counts of a checkpoint on disk."""
    if request.trusts_code:
        return Known(counts=None, reason="with trust_remote_code, a checkpoint's code runs for each estimate", files={})
    if env.no_compile_cache():
        return Known(counts=None, reason="NEURON_CC_FLAGS has --no_cache", files={})
    try:
        files = _files(folder, request, machine)
    except (ConfigError, OSError, TypeError) as error:
        problem = str(error).splitlines()[0]
        return Known(counts=None, reason=f"there is no file for counts of this request ({problem})", files={})
    problems = []
    for kind, file in files.items():
        counts, reason = file.read(kind)
        if counts is not None:
            return Known(counts=counts, reason=reason, files=files)
        problems += [reason] if reason else []
    reason = problems[0] if problems else "no counts of this configuration are in the cache"
    return Known(counts=None, reason=reason, files=files)


def _files(folder: Path, request: EstimateRequest, machine: Machine) -> dict[type[Counts], CountFile]:
    """Files of the classes of counts that a request can be answered from."""
    files: dict[type[Counts], CountFile] = {}
    if not request.export and request.speculation is None:
        files[DecoderCounts] = count_file(folder, "decoder", {"task": request.task})
    where = {"instance": machine.instance.value.name, "environment": list(env.machine_variables())}
    files[RunCounts] = count_file(folder, "run", request.of_graphs | where)
    return files


FORMAT = 1
"""Version of the files."""
_SOURCES = ("base", "compiler", "exporters", "hardware", "kinds", "models", "simulator", "sources", "weights")
"""Packages whose source decides counts."""
_LIBRARIES = ("torch", "transformers")


@functools.cache
def _versions() -> dict[str, str]:
    source = hash_of_sources(Path(__file__).parents[1], _SOURCES)
    return {"format": str(FORMAT), "optimum_neuron": __version__, **installed_versions(*_LIBRARIES), "source": source}


COUNTS = Records(name="counts", versions=lambda: _versions())


def checkpoint_hash(folder: Path) -> str:
    """Return the hash of the names and contents of the files of a checkpoint that decide its program."""
    from ..sources import CONFIGURATION_FILES

    found = {path for pattern in CONFIGURATION_FILES for depth in ("", "*/") for path in folder.glob(depth + pattern)}
    return hash_of_sources(folder, sorted(str(path.relative_to(folder)) for path in found if path.is_file()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountFile:
    """The counts of one configuration."""

    record: Record

    def read(self, kind: type[T]) -> tuple[T | None, str]:
        """Return the counts and where they are; None and an empty text if there are none, None and why if damaged."""
        try:
            counts = from_plain(kind, self.record.read().get("counts"))
            return counts, f"counts of this configuration are in {self.record.path}"
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError, TypeError) as error:
            return None, f"the cached counts cannot be read ({error})"

    def write(self, model: str, counts: Any) -> str:
        """Write counts of a model; return where they are, or why they are not recorded."""
        return self.record.write({"model": model, "counts": to_plain(counts)})


def count_file(folder: Path, name: str, options: Mapping[str, Any]) -> CountFile:
    """Return the file for the checkpoint of a folder; `name` says what is counted."""
    key = {"counts": name, "checkpoint": checkpoint_hash(folder), "options": dict(options)}
    return CountFile(record=COUNTS.find(key))
