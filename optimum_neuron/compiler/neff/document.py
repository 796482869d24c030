"""`neff.json`, the one member of a NEFF that the container itself reads: compiler, model, and target.

It does not depend on files. The header repeats some of these facts; since the document is covered by the hash, a reader
builds the header it expects from the document and compares, so that no byte of the header goes unchecked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_origin, get_type_hints

from ...errors import ConfigError
from ..canonical import canonical_json
from .header import NeffHeader

DOCUMENT_NAME = "neff.json"
"""The reserved member."""
FORMAT_VERSION = 1
"""Version written by this package; also the header's major version."""

_MAX_NAME_BYTES, _MAX_VERSION_BYTES = 255, 127


@dataclass(frozen=True, kw_only=True)
class NeffDocument:
    """The content of `neff.json`."""

    name: str
    """Name of the model, at most 255 bytes."""
    target: str
    """Target compiled for, for example "inf2"."""
    core_version: int
    """Generation of its NeuronCore, for example 2."""
    compiler_version: str
    """Version of the compiler, at most 127 bytes."""
    num_cores: int = 1
    """NeuronCores the program runs on."""
    lnc_size: int = 1
    """Physical NeuronCores that make one logical core."""
    metadata: Mapping[str, Any]
    """Plain data of the caller."""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        problems = {
            field: f"{field} is a {type(getattr(self, field)).__name__} instead of {kind.__name__.lower()}"
            for field, kind in _TYPES.items()
            if not isinstance(getattr(self, field), kind) or isinstance(getattr(self, field), bool)
        }
        if not problems:
            counts = {f: getattr(self, f) for f in ("core_version", "num_cores", "lnc_size")}
            problems = {f: f"{f} is {count}" for f, count in counts.items() if not 1 <= count < 2**32}
            problems |= _text_problems("name", self.name, _MAX_NAME_BYTES)
            problems |= _text_problems("compiler_version", self.compiler_version, _MAX_VERSION_BYTES)
        if problems:
            sentences = list(problems.values())
            message = f"A NEFF header cannot hold these values: {'; '.join(sentences)}."
            raise ConfigError(message, hint="Pass other values.", fields=list(problems), problems=sentences)

    def to_json(self) -> bytes:
        """The member's bytes, canonical."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        return canonical_json(content, what=f"{DOCUMENT_NAME} of {self.name!r}")

    @classmethod
    def from_json(cls, data: bytes) -> NeffDocument:
        """Read the member."""
        try:
            content = json.loads(data)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error
        expected = {field.name for field in fields(cls)}
        if not isinstance(content, dict) or set(content) != expected:
            actual = sorted(content) if isinstance(content, dict) else type(content).__name__
            raise ValueError(f"its fields are {actual} instead of {sorted(expected)}")
        return cls(**content)

    def header(self, *, data_size: int, digest: bytes) -> NeffHeader:
        """The header that belongs to this document and a data part."""
        return NeffHeader(
            data_size=data_size,
            neff_version_major=self.format_version,
            build_version=self.compiler_version,
            num_tpb=self.num_cores,
            hash=digest,
            name=self.name,
            lnc_size=self.lnc_size,
        )


_TYPES = {name: get_origin(kind) or kind for name, kind in get_type_hints(NeffDocument).items()}


def _text_problems(field: str, text: str, limit_bytes: int) -> dict[str, str]:
    if not text.isprintable():
        return {field: f"{field} {text!r} has characters that cannot be printed"}
    size_bytes = len(text.encode())
    return {field: f"{field} has {size_bytes} bytes, {limit_bytes} fit"} if size_bytes > limit_bytes else {}
