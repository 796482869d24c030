"""Small JSON files of this machine below OPTIMUM_NEURON_HOME: results that are worked out once.

The name of a file is the hash of everything that its result depends on, so no file is ever out of date, and files of
other versions are never read. A damaged file counts as missing. No file has weights or code. This module does not know
what the results are.

    >>> import os, tempfile
    >>> from unittest import mock
    >>> from optimum_neuron.files.records import Records
    >>> records = Records(name="counts", versions=lambda: {"torch": "2.13"})
    >>> with tempfile.TemporaryDirectory() as home, mock.patch.dict(os.environ, OPTIMUM_NEURON_HOME=home):
    ...     _ = records.find({"model": "tiny"}).write({"flops": 3})
    ...     records.find({"model": "tiny"}).read()["flops"], records.status()["num_entries"]
    (3, 1)
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base import env
from ..errors import CacheError
from .atomic import can_write, private_folder, write_bytes
from .plain_json import parse_json

_DAY_S = 86400


def installed_versions(*names: str) -> dict[str, str]:
    """Return the versions of the distributions that are installed, for `Records.versions`."""
    return {name: importlib.metadata.version(name) for name in names if importlib.util.find_spec(name)}


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_of_sources(root: Path, names: Iterable[str], suffixes: tuple[str, ...] = (".py",)) -> str:
    """Hash files and folders below `root`, with their paths; of folders the files with one of the suffixes."""
    digest = hashlib.sha256()
    for name in names:
        entry = root / name
        paths = sorted(path for path in entry.rglob("*") if path.suffix in suffixes) if entry.is_dir() else [entry]
        for path in paths:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """The file of one result, which may not exist."""

    path: Path
    key: Mapping[str, Any]
    """Everything that its result depends on."""

    def read(self) -> dict[str, Any]:
        """Return what was written, with the key."""
        data = parse_json(self.path.read_bytes())
        if not isinstance(data, dict) or data.get("key") != self.key:
            raise ValueError("the record of another key")
        return data

    def write(self, data: Mapping[str, Any]) -> str:
        """Write a result; return a sentence without its subject: where it is, or why it is not there."""
        try:
            env.make_home()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"key": self.key, "created_unix_s": time.time(), **data}).encode()
            write_bytes(self.path, content, error=CacheError, durable=False)
        except (OSError, CacheError) as error:
            return f"not recorded: {str(error).splitlines()[0]}"
        return f"recorded in {self.path}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records:
    """The records of one kind."""

    name: str
    versions: Callable[[], Mapping[str, str]]
    """Returns the versions of everything that decides a result besides its key."""

    def folder(self) -> Path:
        """Return the folder of the files, which may not exist."""
        folder = env.home() / self.name
        return folder if can_write(folder) else private_folder(folder)

    def find(self, key: Mapping[str, Any]) -> Record:
        """Return the record of a key, which has a JSON form."""
        text = json.dumps({**key, "versions": dict(self.versions())}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return Record(path=self.folder() / f"{digest[:32]}.json", key=json.loads(text))

    def status(self) -> dict[str, Any]:
        """Return the folder, the number of its files, their size, and how many are damaged or of other versions."""
        entries = list(self._entries())
        return {
            "folder": str(self.folder()),
            "num_entries": len(entries),
            "size_bytes": sum(size_bytes for _, size_bytes, _ in entries),
            "num_unusable": sum(problem is not None for _, _, problem in entries),
        }

    def prune(
        self,
        *,
        older_than_days: float | None = None,
        unusable: bool = True,
        everything: bool = False,
        dry_run: bool = False,
    ) -> list[dict[str, Any]]:
        """Remove files, and return the name, reason, and size of each.

        Args:
            unusable: remove those of other versions, and damaged ones.
        """
        removed = []
        for path, size_bytes, problem in self._entries():
            age_days = (time.time() - path.stat().st_mtime) / _DAY_S
            if everything:
                reason = f"all {self.name}"
            elif problem is not None and unusable:
                reason = problem
            elif older_than_days is not None and age_days > older_than_days:
                reason = f"{age_days:.0f} days old"
            else:
                continue
            removed.append({"name": f"{self.name}/{path.name}", "reason": reason, "size_bytes": size_bytes})
            if not dry_run:
                path.unlink(missing_ok=True)
        return removed

    def _entries(self) -> Iterator[tuple[Path, int, str | None]]:
        """Yield each file with its size, and the reason why this version cannot use it, or None."""
        versions = dict(self.versions())
        for path in sorted(self.folder().glob("*.json")):
            try:
                size_bytes = path.stat().st_size
                data = parse_json(path.read_bytes())
                problem = None if data["key"]["versions"] == versions else "of another version"
            except FileNotFoundError:  # another process removed it
                continue
            except (OSError, ValueError, TypeError, LookupError):
                problem = "damaged"
            yield path, size_bytes, problem
