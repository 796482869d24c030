"""What the metadata of a traced NEFF says beside its program; `compile.py` writes it, `session.py` reads it."""

from __future__ import annotations

from ..artifact import Artifact
from ..errors import ArtifactError

KIND = "trace"
"""Kind of artifact in the metadata of a traced NEFF."""

_METADATA = ("entries", "optlevel", "weight_sources", "weights", "states")


def require_traced(artifact: Artifact) -> None:
    """Check that an artifact is a traced model, whose metadata agrees with its program.

    Raises:
        ArtifactError: the NEFF was written by something else, or was altered.
    """
    metadata, program = artifact.metadata, artifact.program
    missing = [key for key in _METADATA if key not in metadata]
    if metadata.get("kind") != KIND or missing:
        kind = f"its metadata has no {', '.join(missing)}" if missing else f"kind {metadata.get('kind')!r}"
        raise ArtifactError(
            f"{artifact.path} is not a traced model: {kind}.",
            hint="Load an exported folder with from_pretrained, and trace models with torch_neuronx.trace.",
            path=str(artifact.path),
            missing=missing,
        )
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
        raise ArtifactError(
            f"{artifact.path} does not fit together: {'; '.join(problems)}.",
            hint="Trace the model again.",
            problems=problems,
        )
