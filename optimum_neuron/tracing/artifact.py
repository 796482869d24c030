"""Metadata of a traced NEFF besides its program; `compile.py` writes it, `session.py` reads it."""

from __future__ import annotations

from ..artifact import Artifact
from ..compiler.neff import Neff
from ..errors import ArtifactError

KIND = "trace"
"""Kind of artifact in the metadata of a traced NEFF."""

_METADATA = ("entries", "optlevel", "weight_sources", "weights", "states")


def require_traced(neff: Neff) -> None:
    """Check that a NEFF is a traced model."""
    kind, missing = neff.metadata.get("kind"), [key for key in _METADATA if key not in neff.metadata]
    if kind != KIND or missing:
        lacks = ", ".join(missing) or "none"
        message = f"{neff.path} is not a traced model: kind {kind!r}, missing metadata: {lacks}."
        hint = "Load an exported folder with from_pretrained, and trace models with torch_neuronx.trace."
        raise ArtifactError(message, hint=hint, path=str(neff.path), kind=kind, missing=missing)


def require_agreement(artifact: Artifact) -> None:
    """Check that the metadata of a traced model agrees with its program."""
    metadata, program = artifact.metadata, artifact.program
    problems = [
        f"its metadata's {key} are {written}, those of the program {actual}"
        for key, written, actual in (
            ("entries", sorted(metadata["entries"]), sorted(program.graphs)),
            ("weights", sorted(metadata["weight_sources"]), sorted(program.weights)),
            ("states", [f"{state}.0" for state in metadata["states"]], list(program.states)),
        )
        if written != actual
    ]
    if problems:
        message = f"{artifact.path} does not fit together: {'; '.join(problems)}."
        raise ArtifactError(message, hint="Trace the model again.", problems=problems)
