"""One file for the counts of one configuration with one set of options, below this package's cache folder.

The name of a file is the hash of everything that its counts depend on: the content of the checkpoint's configuration
and code, the options, this package's source, and the versions of torch and transformers. So no file is ever out of
date, and files of other versions are never read. A damaged file counts as missing. No file has weights or code.

    file = count_file(folder, "decoder", {"task": None})
    sizes, reason = file.read(DecoderSizes)
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from ... import env
from ...atomic import write_bytes
from ...compiler import hash_of_sources
from ...errors import CacheError
from ...plain_json import parse_json
from ...private_folder import can_write, private_folder
from ...version import __version__
from .plain import from_plain, to_plain

T = TypeVar("T")

FORMAT = 1
"""Version of the files."""
_SOURCES = ("compiler", "exporters", "hardware", "models", "simulator", "weights")
"""Packages whose source decides counts."""
_LIBRARIES = ("torch", "transformers")


def counts_folder() -> Path:
    """Return the folder of the files, which may not exist.

    Raises:
        ConfigError: neither this package's cache folder nor the temporary folder can be written.
    """
    folder = env.home() / "counts"
    return folder if can_write(folder) else private_folder(folder)


@functools.cache
def versions() -> dict[str, str]:
    """Return what wrote or reads a file: versions, and a hash of the source code that counts."""
    source = hash_of_sources(Path(__file__).parents[2], _SOURCES)
    libraries = {name: importlib.metadata.version(name) for name in _LIBRARIES}
    return {"format": str(FORMAT), "optimum_neuron": __version__, **libraries, "source": source}


def checkpoint_hash(folder: Path) -> str:
    """Return the hash of the names and contents of the files of a checkpoint that decide its program."""
    from ...exporters import CONFIGURATION_FILES

    found = {path for pattern in CONFIGURATION_FILES for depth in ("", "*/") for path in folder.glob(depth + pattern)}
    return hash_of_sources(folder, sorted(str(path.relative_to(folder)) for path in found if path.is_file()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountFile:
    """The file of one configuration."""

    path: Path
    key: Mapping[str, Any]
    """Everything that its counts depend on."""

    def read(self, kind: type[T]) -> tuple[T | None, str]:
        """Return the counts and where they are; None and an empty text if there are none, None and why if damaged."""
        try:
            data = parse_json(self.path.read_bytes())
            if not isinstance(data, dict) or data.get("key") != self.key:
                raise ValueError("the record of another configuration")
            return from_plain(kind, data.get("counts")), f"counts of this configuration are in {self.path}"
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError, TypeError) as error:
            return None, f"the cached counts cannot be read ({error})"

    def write(self, model: str, counts: Any) -> str:
        """Write counts of a model, and return where they are, or why they are not kept."""
        data = {"model": model, "key": self.key, "counts": to_plain(counts)}
        try:
            env.make_home()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(self.path, json.dumps(data).encode(), error=CacheError, durable=False)
        except (OSError, CacheError) as error:
            return f"they are not kept: {str(error).splitlines()[0]}"
        return f"they are kept in {self.path}"


def count_file(folder: Path, name: str, options: Mapping[str, Any]) -> CountFile:
    """Return the file for the checkpoint of a folder; `name` says what is counted.

    Raises:
        ConfigError: no folder for it can be written.
        OSError: a file of the checkpoint cannot be read.
    """
    key = {"counts": name, "checkpoint": checkpoint_hash(folder), "options": dict(options), "versions": versions()}
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    return CountFile(path=counts_folder() / f"{digest[:32]}.json", key=key)
