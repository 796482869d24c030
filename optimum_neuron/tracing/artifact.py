"""What the metadata of a traced NEFF says beside its program; `compile.py` writes it, `session.py` reads it."""

from __future__ import annotations

from typing import Any

from ..compiler.ir import Program
from ..compiler.neff import Neff
from ..errors import ArtifactError, refusal

KIND = "trace"
"""What the metadata of a traced NEFF says that it is."""

_METADATA = ("entries", "optlevel", "weight_sources", "weights", "states")


def trace_metadata(neff: Neff) -> dict[str, Any]:
    """The metadata of a traced model.

    Raises:
        ArtifactError: the NEFF was written by something else.
    """
    metadata = dict(neff.metadata)
    missing = [key for key in _METADATA if key not in metadata]
    if metadata.get("kind") != KIND or missing:
        raise ArtifactError(
            refusal(
                asked=f"running {neff.path} as a traced model",
                found=f"its metadata has no {', '.join(missing)}" if missing else f"kind {metadata.get('kind')!r}",
                why="it was not written by torch_neuronx.trace",
                do="load an exported folder with from_pretrained, and trace models with torch_neuronx.trace",
            )
        )
    return metadata


def require_agreement(program: Program, metadata: dict[str, Any], name: str) -> None:
    """Compare metadata and program.

    Raises:
        ArtifactError: they do not belong together.
    """
    problems = [
        f"{what} are {told}, those of the program {found}"
        for what, told, found in (
            ("entries", sorted(metadata["entries"]), sorted(program.graphs)),
            ("weights", sorted(metadata["weight_sources"]), sorted(program.weights)),
            ("states", [f"{state}.0" for state in metadata["states"]], list(program.states)),
        )
        if told != found
    ]
    if problems:
        raise ArtifactError(
            refusal(
                asked=f"running {name}",
                found=f"its metadata's {'; '.join(problems)}",
                why="the program and what is told about it belong together",
                do="trace the model again",
            )
        )
