"""The tar inside a NEFF: member names that are safe on every system, deterministic headers, a strict index.

It knows offsets and sizes, not content. Names are relative, with forward slashes and without "..", drive letters or
surprises; a member is a regular file, never a link or a device; nothing follows the end of the tar.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from mmap import mmap

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
