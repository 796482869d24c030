"""Check that a NEFF fits the NeuronCore that shall run it.

It compares generations; it knows nothing of the hardware catalogue, so callers pass plain names and numbers.
"""

from __future__ import annotations

from ...errors import TargetMismatchError
from .reader import Neff


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
    document = neff.document
    if document.core_version == core_version:
        return
    raise TargetMismatchError(
        f"{neff.path} was compiled for {document.target} (NeuronCore-v{document.core_version}) "
        f"and cannot run on {target} (NeuronCore-v{core_version}).",
        hint=f"Recompile it with `optimum-cli export neuron --model MODEL --instance_type {target} OUTPUT_FOLDER`, "
        f"or simulate its own target with OPTIMUM_NEURON_INSTANCE={document.target}.",
        compiled_for=document.target,
        compiled_core_version=document.core_version,
        target=target,
        core_version=core_version,
    )
