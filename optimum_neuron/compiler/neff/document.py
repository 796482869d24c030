"""`neff.json`, the one member of a NEFF that the container itself reads, and the header.

It does not depend on files. The header repeats some of these facts; since the document is covered by the hash, a reader
builds the header it expects from the document and compares, so that no byte of the header goes unchecked.

The published 1,024-byte header is in front of every NEFF. Field names, order, and widths follow the Neuron SDK
documentation, "Work with NEFF Files", section "NEFF Header"; numbers are little-endian.

The tar inside has member names that are safe on every system, deterministic headers, and a strict index of offsets and
sizes. Names are relative, with forward slashes and without "..", drive letters or surprises; a member is a regular
file, never a link or a device; nothing follows the end of the tar.

    >>> header = NeffHeader(data_size=2048, build_version="2.21", hash=bytes(32), name="bert", num_tpb=2)
    >>> len(header.pack()), NeffHeader.unpack(header.pack()) == header
    (1024, True)
"""

from __future__ import annotations

import json
import struct
import tarfile
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from mmap import mmap
from typing import Any, get_origin, get_type_hints

from ...errors import ConfigError
from ...files.plain_json import canonical_json

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


_LAYOUT = struct.Struct("<5Q 128s I 32s 16s 256s I 64x Q I 468x")

HEADER_SIZE_BYTES = _LAYOUT.size
"""1,024: the tar begins right behind."""
PKG_VERSION = 1
"""An uncompressed tar with a SHA-256 hash; 2 is the gzip-compressed tar that the vendor's compiler writes."""


@dataclass(frozen=True, kw_only=True)
class NeffHeader:
    """The header's fields, by their published names; `tpb_per_node` and the padding are zero."""

    pkg_version: int = PKG_VERSION
    """Packing of the data part."""
    header_size: int = HEADER_SIZE_BYTES
    """Bytes before the data part."""
    data_size: int
    neff_version_major: int = 1
    """Version of the format; a reader rejects newer ones."""
    neff_version_minor: int = 0
    """Revision of the format; a reader rejects newer ones."""
    build_version: str
    num_tpb: int
    hash: bytes
    """SHA-256 of the data part."""
    name: str
    feature_bits: int = 0
    """Optional features in use: none."""
    lnc_size: int = 1
    """Physical NeuronCores that make one logical core."""

    @property
    def uuid(self) -> uuid.UUID:
        """Identity of the content, derived from the hash so that equal content has equal bytes."""
        return uuid.uuid5(uuid.NAMESPACE_OID, self.hash.hex())

    def pack(self) -> bytes:
        """The 1,024 bytes."""
        return _LAYOUT.pack(
            self.pkg_version,
            self.header_size,
            self.data_size,
            self.neff_version_major,
            self.neff_version_minor,
            self.build_version.encode(),
            self.num_tpb,
            self.hash,
            self.uuid.bytes,
            self.name.encode(),
            self.num_tpb,
            self.feature_bits,
            self.lnc_size,
        )

    @classmethod
    def unpack(cls, raw: bytes) -> NeffHeader:
        """Read the fields from 1,024 bytes, unchecked."""
        (pkg, size, data_size, major, minor, build, num_tpb, digest, _uuid, name, _requested, features, lnc) = (
            _LAYOUT.unpack(raw)
        )
        return cls(
            pkg_version=pkg,
            header_size=size,
            data_size=data_size,
            neff_version_major=major,
            neff_version_minor=minor,
            build_version=_text(build),
            num_tpb=num_tpb,
            hash=digest,
            name=_text(name),
            feature_bits=features,
            lnc_size=lnc,
        )


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")


BLOCK_BYTES = tarfile.BLOCKSIZE
"""Members begin at multiples of this, so that tensors inside them are aligned."""
END_BYTES = 2 * BLOCK_BYTES
"""Zeros that end a tar."""
_MAX_PADDING_BYTES = END_BYTES + tarfile.RECORDSIZE


@dataclass(frozen=True, kw_only=True)
class Span:
    """Position of a member's bytes in the file."""

    offset: int
    """From the start of the file, in bytes."""
    size_bytes: int


def padding_bytes(size_bytes: int) -> int:
    """Zeros that follow a member of this size."""
    return -size_bytes % BLOCK_BYTES


def member_header(name: str, size_bytes: int) -> bytes:
    """The tar header of a member, the same for the same name and size: no times, owners or modes of the machine."""
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    return info.tobuf(format=tarfile.PAX_FORMAT, encoding="utf-8", errors="strict")


def name_problem(name: str) -> str | None:
    """Why a member may not have this name, or None."""
    parts = name.split("/")
    if not name or not name.isprintable():
        return f"{name!r} is empty or not printable"
    if name.startswith("/"):
        return f"{name!r} is absolute"
    if ".." in parts:
        return f"{name!r} climbs out of its folder"
    if "\\" in name or ":" in name:
        return f"{name!r} has a backslash or a drive letter"
    if "" in parts or "." in parts:
        return f"{name!r} has an empty or a '.' part"
    return None


def name_problems(names: Iterable[str]) -> list[str]:
    """Everything wrong with a set of member names, also names that are both a file and a folder."""
    known = set(names)
    problems = [problem for name in sorted(known) if (problem := name_problem(name))]
    for name in sorted(known):
        parts = name.split("/")
        folders = ("/".join(parts[:i]) for i in range(1, len(parts)))
        problems += [f"{folder!r} is a file and also the folder of {name!r}" for folder in folders if folder in known]
    return problems


def index(file: mmap, *, start: int, end: int) -> dict[str, Span]:
    """List the members of the tar between two offsets."""
    spans: dict[str, Span] = {}
    problems: list[str] = []
    position = start
    for info in _infos(file, start):
        if info.size < 0 or info.offset_data < position or info.offset_data + info.size > end:
            raise ValueError(f"member {info.name!r} lies outside of the file")
        position = info.offset_data + info.size + padding_bytes(info.size)
        if problem := _kind_problem(info):
            problems.append(problem)
        if info.name in spans:
            problems.append(f"{info.name!r} is there twice")
        spans[info.name] = Span(offset=info.offset_data, size_bytes=info.size)
    problems += name_problems(spans)
    if problems:
        raise ValueError("; ".join(problems))
    if not END_BYTES <= end - position <= _MAX_PADDING_BYTES or any(file[position:end]):
        raise ValueError(f"the tar does not end behind its last member, at byte {position}")
    return spans


def _infos(file: mmap, start: int) -> Iterable[tarfile.TarInfo]:
    file.seek(start)
    try:
        archive = tarfile.TarFile.open(fileobj=file, mode="r:")
        while (info := archive.next()) is not None:
            yield info
    # A damaged header surfaces in tarfile as any of these, depending on the field.
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, OSError) as error:
        raise ValueError(f"the tar cannot be read ({error})") from error


def _kind_problem(info: tarfile.TarInfo) -> str | None:
    if info.issym() or info.islnk():
        return f"{info.name!r} is a link to {info.linkname!r}"
    if info.isdir():
        return f"{info.name!r} is a folder entry"
    if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.issparse():
        return f"{info.name!r} is a device, a pipe or another special file"
    return None
