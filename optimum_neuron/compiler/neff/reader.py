"""Open a NEFF: check every byte of it, map it, and hand out members without copying.

It does not depend on the meaning of members. The file is mapped, so members of hundreds of megabytes cost no memory
until they are touched, and two processes share the pages.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import ArtifactError, ConfigError, FormatVersionError, TargetMismatchError, nearest
from .document import (
    DOCUMENT_NAME,
    FORMAT_VERSION,
    HEADER_SIZE_BYTES,
    PKG_VERSION,
    NeffDocument,
    NeffHeader,
    Span,
    index,
)

_VENDOR_PKG_VERSION = 2
_FACTS = ("format_version", "target", "core_version", "compiler_version", "num_cores", "lnc_size")
_AGAIN = "Copy the file again from its source, or recompile the model."


class Neff:
    """An open NEFF. Views handed out by `read` stay valid after `close`; the mapping goes when the last one does."""

    def __init__(
        self, path: Path, header: NeffHeader, document: NeffDocument, spans: Mapping[str, Span], view: memoryview
    ) -> None:
        self.path = path
        self.header = header
        self.document = document
        self._spans = spans
        self._view: memoryview | None = view

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The plain data that the writer was given."""
        return self.document.metadata

    @property
    def content(self) -> memoryview:
        """The whole file, header included, as a read-only view of the mapping."""
        if self._view is None:
            raise _error(self.path, "closed", "is closed", "Read its members before closing it.")
        return self._view

    @property
    def names(self) -> tuple[str, ...]:
        """Members in order, without the container's own `neff.json`."""
        return tuple(sorted(name for name in self._spans if name != DOCUMENT_NAME))

    def read(self, name: str) -> memoryview:
        """Give a member's bytes as a read-only view of the mapped file; the address is aligned to 512 bytes."""
        content, span = self.content, self._spans.get(name)
        if span is None:
            problem = f"has no member {name!r}{nearest(name, self.names)} (members: {', '.join(self.names)})"
            raise _error(self.path, "no_member", problem, "Recompile the model with this version.", member=name)
        return content[span.offset : span.offset + span.size_bytes]

    def close(self) -> None:
        """Give the mapping back as soon as no view of it is left; closing twice does nothing."""
        self._view = None

    def __enter__(self) -> Neff:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def to_dict(self) -> dict[str, Any]:
        """Plain data that describes the file, for `--json`."""
        document = self.document
        return {
            "path": str(self.path),
            "name": document.name,
            "uuid": str(self.header.uuid),
            "hash": self.header.hash.hex(),
            **{field: getattr(document, field) for field in _FACTS},
            "size_bytes": HEADER_SIZE_BYTES + self.header.data_size,
            "members": [{"name": name, "size_bytes": self._spans[name].size_bytes} for name in self.names],
            "metadata": dict(document.metadata),
        }


def neff_from_bytes(data: memoryview, origin: str) -> Neff:
    """Open a NEFF that is in memory, after the same checks as `open_neff`; its bytes are copied once.

    Args:
        data: The whole NEFF.
        origin: Source of the data, for messages.
    """
    header = _checked_header(Path(origin), bytes(data[:HEADER_SIZE_BYTES]), len(data))
    mapping = mmap.mmap(-1, len(data))
    mapping[:] = data
    return _checked_neff(Path(origin), header, mapping, verify=True)


def open_neff(path: str | Path, *, verify: bool = True) -> Neff:
    """Open a NEFF after checking it; also a context manager.

    Args:
        path: The file.
        verify: Hash the data part. Without it damage inside members goes unseen; everything else is still checked.

    Raises:
        ArtifactError: The file is missing, no NEFF, cut short, altered, or holds unsafe members.
        FormatVersionError: A newer version of the format.
    """
    path = Path(path)
    if not path.is_file():
        reason, problem = "no_file", "is not a regular file"
        if not path.exists():
            reason, problem = "missing", "does not exist"
        raise _error(path, reason, problem, "Check the path, or compile the model.")
    try:
        with open(path, "rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            raw = file.read(HEADER_SIZE_BYTES)
            header = _checked_header(path, raw, size_bytes)
            mapping = mmap.mmap(file.fileno(), size_bytes, access=mmap.ACCESS_READ)
    except OSError as error:
        problem = f"cannot be read: {error}"
        raise _error(path, "unreadable", problem, "Check its permissions and its disk.") from error
    return _checked_neff(path, header, mapping, verify=verify)


def _checked_neff(path: Path, header: NeffHeader, mapping: mmap.mmap, *, verify: bool) -> Neff:
    view = memoryview(mapping).toreadonly()
    raw, size_bytes = bytes(view[:HEADER_SIZE_BYTES]), len(view)
    if verify and hashlib.sha256(view[HEADER_SIZE_BYTES:]).digest() != header.hash:
        problem = "was altered after it was written: its content does not match the hash in its header"
        raise _error(path, "altered_content", problem)
    try:
        spans = index(mapping, start=HEADER_SIZE_BYTES, end=size_bytes)
    except ValueError as error:
        hint = "Do not use it; compile the model yourself."
        raise _error(path, "unsafe", f"is unsafe to unpack: {error}", hint) from error
    document = _checked_document(path, view, spans)
    if document.header(data_size=header.data_size, digest=header.hash).pack() != raw:
        problem = f"was altered after it was written: its header does not match {DOCUMENT_NAME}"
        raise _error(path, "altered_header", problem)
    return Neff(path, header, document, spans, view)


def _error(path: Path, reason: str, problem: str, hint: str = _AGAIN, **details: object) -> ArtifactError:
    details |= {"path": str(path), "reason": reason, "problem": problem}
    return ArtifactError(f"{path} {problem}.", hint=hint, **details)


def _too_new(path: Path, version: str) -> FormatVersionError:
    message = f"{path} has format version {version}, but this package reads version {FORMAT_VERSION}."
    hint = "Install a newer optimum-neuron-sim, or recompile the model with this one."
    return FormatVersionError(message, hint=hint, path=str(path), format_version=version)


def _checked_header(path: Path, raw: bytes, size_bytes: int) -> NeffHeader:
    if size_bytes < HEADER_SIZE_BYTES:
        problem = f"is too short for a NEFF: {size_bytes:,} bytes, its header has {HEADER_SIZE_BYTES:,}"
        raise _error(path, "too_short", problem)
    header = NeffHeader.unpack(raw)
    if header.header_size != HEADER_SIZE_BYTES or header.pkg_version not in (PKG_VERSION, _VENDOR_PKG_VERSION):
        raise _error(path, "no_neff", "is not a NEFF", "Pass the model.neuron or .neff file of an exported model.")
    if header.pkg_version == _VENDOR_PKG_VERSION:
        problem = f"is a NEFF for real hardware (compiler {header.build_version!r}), which this simulator cannot run"
        raise _error(path, "real_hardware", problem, "Export the original model again with this package.")
    if (header.neff_version_major, header.neff_version_minor) > (FORMAT_VERSION, 0):
        raise _too_new(path, f"{header.neff_version_major}.{header.neff_version_minor}")
    expected_bytes = HEADER_SIZE_BYTES + header.data_size
    if size_bytes != expected_bytes:
        kind = "truncated" if size_bytes < expected_bytes else "longer than it should be"
        problem = f"is {kind}: {size_bytes:,} bytes, its header announces {expected_bytes:,}"
        raise _error(path, "other_size", problem, size_bytes=size_bytes, expected_bytes=expected_bytes)
    return header


def _checked_document(path: Path, view: memoryview, spans: Mapping[str, Span]) -> NeffDocument:
    span = spans.get(DOCUMENT_NAME)
    if span is None:
        raise _error(path, "document", f"has no {DOCUMENT_NAME}")
    try:
        document = NeffDocument.from_json(bytes(view[span.offset : span.offset + span.size_bytes]))
    except (ValueError, ConfigError) as error:
        raise _error(path, "document", f"has a {DOCUMENT_NAME} that cannot be used: {error}") from error
    if document.format_version > FORMAT_VERSION:
        raise _too_new(path, str(document.format_version))
    return document


def check_target(neff: Neff, target: str, core_version: int) -> None:
    """Raise an error for a NEFF that was compiled for another generation of NeuronCore.

    Targets of one generation (trn1, trn1n and inf2 all have NeuronCore-v2) run each other's artifacts.

    Args:
        neff: The open artifact.
        target: Target that shall run it, for example "trn2".
        core_version: Generation of that target's NeuronCore, for example 3.

    Raises:
        TargetMismatchError: The generations differ; the message has the command that recompiles.
    """
    compiled_for, compiled_version = neff.document.target, neff.document.core_version
    if compiled_version == core_version:
        return
    message = (
        f"{neff.path} was compiled for {compiled_for} (NeuronCore-v{compiled_version}) and cannot run on {target} "
        f"(NeuronCore-v{core_version})."
    )
    hint = (
        f"Recompile it with `optimum-cli export neuron --model MODEL --instance_type {target} OUTPUT_FOLDER`, or "
        f"simulate its own target with OPTIMUM_NEURON_INSTANCE={compiled_for}."
    )
    details = {"compiled_for": compiled_for, "compiled_core_version": compiled_version}
    raise TargetMismatchError(message, hint=hint, target=target, core_version=core_version, **details)
