"""NKI kernels: accepted where the target has all of their instructions and obeys their sizes."""

from __future__ import annotations

from ... import nki
from ...base.core import Ruling, Verdict
from ...errors import KernelError
from .base import OpCall, Target, refuse, rule


@rule("nki-kernel", "neuron.nki_kernel", judges_dtypes=True)
def judge(call: OpCall, target: Target) -> Ruling:
    """Check the instructions of a kernel against the rules of a target."""
    stream = nki.stream_of(call.arguments["kernel"])
    try:
        nki.streams.verify(stream, target)
    except KernelError as error:
        reason = f"the kernel {stream.name} does not run on {target.name}: {error.message.splitlines()[0]}"
        return refuse(call, "NCC_EUOC002", reason, remedy=error.hint)
    for memory in nki.analysis_of_kernel(call.arguments["kernel"], target.name).memory:
        if memory.overflow_line is not None:
            reason = (
                f"the tiles of the kernel {stream.name} need {memory.peak} bytes of a partition of {memory.buffer}, "
                f"and {target.name} has {memory.capacity} ({memory.overflow_line})"
            )
            return refuse(call, "NCC_EUOC002", reason, remedy="use smaller tiles, or fewer at the same time")
    return Ruling(
        verdict=Verdict.NATIVE,
        op=call.op,
        rule="",
        reason=f"the NKI kernel {stream.name}, {stream.num_instructions} instructions",
        source="Neuron docs, NKI kernels as custom operators",
        module_path=call.module_path,
        source_line=call.source_line,
    )
