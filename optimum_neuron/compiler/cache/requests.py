"""Names in the cache, computed from content, and the request index: from a description known before capture to the
entry it led to.

A warm load finds its NEFF by the request alone and captures nothing. It knows file names but does not interpret
requests. A label, such as "llama/org/name", is a path below `LABELS` that leads to the same entry, for people who look
for models by name; no compile reads it.

    >>> from optimum_neuron.compiler.cache.requests import entry_name
    >>> entry_name({"compiler_version": "2.21", "target": "inf2"})
    'neuronxcc-2.21/MODULE_e7da75d2aba897d1907d'
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ConfigError
from ...files.plain_json import canonical_json
from .storage import Storage

FOLDER = "requests/"
LABELS = "models/"
INDEX = (FOLDER, LABELS)
_LABEL = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*")


@dataclass(frozen=True, kw_only=True)
class Target:
    """Target of a request: name and full key of an entry."""

    entry: str
    key: str


def index_files(files: Iterable[str], folders: str | tuple[str, ...] = INDEX, ending: str = ".json") -> list[str]:
    """The index files of a listing, sorted."""
    return sorted(path for path in files if path.startswith(folders) and path.endswith(ending))


def record(storage: Storage, request: Mapping[str, Any], target: Target) -> None:
    """Remember where a request leads, unless that is known already."""
    _write(storage, request_path(request), {**asdict(target), "request": request})


def label(storage: Storage, name: str, target: Target) -> None:
    """Make an entry known under a name, unless that is known already; a name that is no plain path is left out."""
    if _LABEL.fullmatch(name):
        _write(storage, f"{LABELS}{name}/{target.entry.rpartition('/')[2]}.json", asdict(target))


def _write(storage: Storage, path: str, content: Mapping[str, Any]) -> None:
    data = canonical_json(content, what="cache request")
    if storage.read(path) != data:
        storage.write(path, data)


def find(storage: Storage, request: Mapping[str, Any]) -> Target | None:
    """Target of a request; None when it was never recorded or its file is damaged."""
    data = storage.read(request_path(request))
    return None if data is None else parse(data)


def parse(data: bytes) -> Target | None:
    """Read an index file; None when it is damaged or points outside of the cache."""
    return parse_whole(data)[0]


def parse_whole(data: bytes) -> tuple[Target | None, Mapping[str, Any]]:
    """Read an index file and the request in it; a label has none."""
    try:
        content = json.loads(data)
        target, request = Target(entry=content["entry"], key=content["key"]), content.get("request")
    # A damaged index file is the same as none: the model is captured and the file is written again.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None, {}
    valid = isinstance(target.entry, str) and isinstance(target.key, str) and ENTRY_NAME.fullmatch(target.entry)
    return target if valid else None, request if isinstance(request, dict) else {}


_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,100}")
_NUM_KEY_CHARACTERS = 20

ENTRY_NAME = re.compile(r"neuronxcc-[A-Za-z0-9][A-Za-z0-9._+-]{0,100}/MODULE_[0-9a-f]{20}")
"""Pattern of entry names; any other name in an index or a listing is ignored."""


def entry_key(fields: Mapping[str, Any]) -> str:
    """Hash everything that decides a compile: SHA-256 of canonical JSON, in hexadecimal.

    Args:
        fields: Plain data with at least `compiler_version`. Paths and weights do not belong here: the former are
            refused by type, the latter are bound when the NEFF is loaded.
    """
    version = fields.get("compiler_version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        message = f"compiler_version is {version!r}, which cannot name a folder of the cache."
        hint = 'Pass a version such as "2.21.0".'
        raise ConfigError(message, hint=hint, option="compiler_version", value=version)
    return hashlib.sha256(canonical_json(fields, what="key of a cache entry")).hexdigest()


def entry_name(fields: Mapping[str, Any]) -> str:
    """The entry's folder below the root of the cache."""
    return f"neuronxcc-{fields['compiler_version']}/MODULE_{entry_key(fields)[:_NUM_KEY_CHARACTERS]}"


def request_path(request: Mapping[str, Any]) -> str:
    """The index file of a request, a description that is known before a model is captured."""
    return f"requests/{hashlib.sha256(canonical_json(request, what='cache request')).hexdigest()}.json"
