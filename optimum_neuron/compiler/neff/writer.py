"""Write a NEFF: deterministic bytes, atomically placed.

It streams members from memory or from files, so that a member of many gigabytes never needs to fit in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import ArtifactError
from ...files.atomic import replacing
from .document import (
    DOCUMENT_NAME,
    END_BYTES,
    HEADER_SIZE_BYTES,
    NeffDocument,
    NeffHeader,
    member_header,
    name_problems,
    padding_bytes,
)

_CHUNK_BYTES = 1 << 20

Content = bytes | memoryview | Path


def write_neff(
    path: str | Path,
    members: Mapping[str, Content],
    *,
    name: str,
    target: str,
    core_version: int,
    compiler_version: str,
    num_cores: int = 1,
    lnc_size: int = 1,
    metadata: Mapping[str, Any],
) -> NeffHeader:
    """Write a NEFF; equal arguments give equal bytes.

    Args:
        path: Destination, written whole or not at all.
        members: Content by relative name with forward slashes; a `Path` is streamed from that file.
        name: Name of the model.
        target: Target it was compiled for, for example "inf2".
        core_version: Generation of the target's NeuronCore, for example 2.
        compiler_version: Version of the compiler.
        num_cores: NeuronCores the program runs on.
        lnc_size: Physical NeuronCores that make one logical core.
        metadata: Plain data (text, numbers, lists, dictionaries) kept in `neff.json`.

    Raises:
        ArtifactError: Names are unsafe, a source file is missing, or the disk is full (needed and free bytes are in
            the message and in `details`).
        ConfigError: The description does not fit the header, or `metadata` is not plain data.

    Example:
        ```python
        import tempfile
        from optimum_neuron.compiler.neff import write_neff

        with tempfile.TemporaryDirectory() as folder:
            header = write_neff(f"{folder}/graph.neff", {"ir.json": b"{}"}, name="bert", target="trn2", core_version=3,
                                compiler_version="2.21", metadata={})
        assert header.header_size == 1024
        ```
    """
    path = Path(path)
    document = NeffDocument(
        name=name,
        target=target,
        core_version=core_version,
        compiler_version=compiler_version,
        num_cores=num_cores,
        lnc_size=lnc_size,
        metadata=metadata,
    )
    sizes = _checked_sizes(path, members)
    contents: dict[str, Content] = {**members, DOCUMENT_NAME: document.to_json()}
    sizes[DOCUMENT_NAME] = _size_bytes(contents[DOCUMENT_NAME])
    return _place(path, contents, sizes, document)


def _place(path: Path, contents: Mapping[str, Content], sizes: Mapping[str, int], document: NeffDocument) -> NeffHeader:
    heads = {member: member_header(member, size) for member, size in sizes.items()}
    data_size = END_BYTES + sum(len(heads[m]) + size + padding_bytes(size) for m, size in sizes.items())

    digest = hashlib.sha256()
    with replacing(path, needed_bytes=HEADER_SIZE_BYTES + data_size, error=ArtifactError) as file:
        file.write(bytes(HEADER_SIZE_BYTES))
        for chunk in _data(contents, heads, sizes):
            digest.update(chunk)
            file.write(chunk)
        header = document.header(data_size=data_size, digest=digest.digest())
        file.seek(0)
        file.write(header.pack())
    return header


def _size_bytes(content: Content) -> int:
    if isinstance(content, Path):
        return content.stat().st_size
    return content.nbytes if isinstance(content, memoryview) else len(content)


def _checked_sizes(path: Path, members: Mapping[str, Content]) -> dict[str, int]:
    problems = name_problems([*members, DOCUMENT_NAME])
    if DOCUMENT_NAME in members:
        problems.append(f"{DOCUMENT_NAME!r} is reserved for the container")
    problems += [
        f"{member!r} comes from {source}, which is no file"
        for member, source in sorted(members.items())
        if isinstance(source, Path) and not source.is_file()
    ]
    if problems:
        message = f"{path} cannot have these members: {'; '.join(problems)}."
        raise ArtifactError(message, hint="Use regular files and safe relative names.", problems=problems)
    return {member: _size_bytes(content) for member, content in members.items()}


def _data(
    contents: Mapping[str, Content], heads: Mapping[str, bytes], sizes: Mapping[str, int]
) -> Iterator[bytes | memoryview]:
    for member in sorted(contents):
        yield heads[member]
        yield from _chunks(contents[member], sizes[member])
        yield bytes(padding_bytes(sizes[member]))
    yield bytes(END_BYTES)


def _chunks(content: Content, size_bytes: int) -> Iterator[bytes | memoryview]:
    if not isinstance(content, Path):
        yield memoryview(content).cast("B") if size_bytes else b""
        return
    left = size_bytes
    with open(content, "rb") as source:
        while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
    if left:
        message = f"{content} became {left:,} bytes shorter while it was packed."
        raise ArtifactError(message, hint="Pack it again.", path=str(content))
