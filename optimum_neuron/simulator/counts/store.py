"""One record for the counts of one configuration with one set of options.

Counts depend on the content of the checkpoint's configuration and code, on the options, on this package's source, and
on the versions of torch and transformers, but not on weights.

    file = count_file(folder, "decoder", {"task": None})
    sizes, reason = file.read(DecoderSizes)
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ...compiler import hash_of_sources
from ...files.records import Record, Records, installed_versions
from ...version import __version__
from .plain import from_plain, to_plain

T = TypeVar("T")

FORMAT = 1
"""Version of the files."""
_SOURCES = ("compiler", "exporters", "hardware", "kinds", "models", "simulator", "sources", "weights")
"""Packages whose source decides counts."""
_LIBRARIES = ("torch", "transformers")


@functools.cache
def _versions() -> dict[str, str]:
    source = hash_of_sources(Path(__file__).parents[2], _SOURCES)
    return {"format": str(FORMAT), "optimum_neuron": __version__, **installed_versions(*_LIBRARIES), "source": source}


COUNTS = Records(name="counts", versions=lambda: _versions())


def checkpoint_hash(folder: Path) -> str:
    """Return the hash of the names and contents of the files of a checkpoint that decide its program."""
    from ...sources import CONFIGURATION_FILES

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
