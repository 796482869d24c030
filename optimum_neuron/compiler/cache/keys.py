"""Names in the cache, computed from content.

It knows which characters a folder may have but does not depend on storage.

    >>> from optimum_neuron.compiler.cache.keys import entry_name
    >>> entry_name({"compiler_version": "2.21", "target": "inf2"})
    'neuronxcc-2.21/MODULE_e7da75d2aba897d1907d'
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError
from ...files.plain_json import canonical_json

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
