"""NKI kernels: accepted where the target has all of their instructions and obeys their sizes."""

from __future__ import annotations

from ...core import Ruling, Verdict
from ...errors import KernelError
from ...nki import stream_of, streams
from .base import OpCall, Target, refuse, rule


@rule("nki-kernel", "neuron.nki_kernel", judges_dtypes=True)
def judge(call: OpCall, target: Target) -> Ruling:
    """Check the instructions of a kernel against the rules of a target."""
    stream = stream_of(call.arguments["kernel"])
    try:
        streams.verify(stream, target)
    except KernelError as error:
        reason = f"the kernel {stream.name} does not run on {target.name}: {error.message.splitlines()[0]}"
        return refuse(call, "NCC_EUOC002", reason, remedy=error.hint)
    return Ruling(
        verdict=Verdict.NATIVE,
        op=call.op,
        rule="",
        reason=f"the NKI kernel {stream.name}, {stream.num_instructions} instructions",
        source="Neuron docs, NKI kernels as custom operators",
        module_path=call.module_path,
        source_line=call.source_line,
    )
