"""Check for operators that torch rejects for mixed dtypes, such as a bfloat16 norm of a float32 input.

Fake tensors do not raise the error that torch's kernels raise on the first call, so the graph is read after capture. It
does not depend on targets: the dtypes that a target supports are defined by the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import CaptureError
from .rules import OpCall, base_name, op_name

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_NORMS = frozenset(
    {
        "aten._native_batch_norm_legit",
        "aten._native_batch_norm_legit_no_training",
        "aten.batch_norm",
        "aten.group_norm",
        "aten.instance_norm",
        "aten.layer_norm",
        "aten.native_batch_norm",
        "aten.native_group_norm",
        "aten.native_layer_norm",
    }
)
"""Operators that take parameters of the input's dtype, or of float32 for a 16-bit input."""

_PRODUCTS = frozenset({"aten.addmm", "aten.baddbmm", "aten.bmm", "aten.linear", "aten.matmul", "aten.mm"})
"""Operators that take operands of one dtype."""

_HALVES = ("bfloat16", "float16")


def require_equal_dtypes(exported: ExportedProgram, name: str) -> None:
    """Raise an error for calls that torch itself rejects; `name` is the entry point."""
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    checked = [OpCall.from_node(n) for n in nodes if base_name(op_name(n.target)) in _NORMS | _PRODUCTS]
    calls = [call for call in checked if _is_mixed(call)]
    if calls:
        problems = [f"{call.name} of {_dtypes(call)} in {call.source_line or call.module_path}" for call in calls]
        message = f"Graph '{name}' mixes dtypes that torch does not combine: {'; '.join(dict.fromkeys(problems))}."
        hint = "Cast the input with x.to(weight.dtype), or keep the module in the dtype of its input."
        raise CaptureError(message, hint=hint, graph=name, problems=problems)


def _is_mixed(call: OpCall) -> bool:
    kinds = {spec.dtype for spec in call.inputs}
    if call.name in _NORMS and call.inputs[0].dtype in _HALVES:
        kinds.discard("float32")
    return len(kinds) > 1


def _dtypes(call: OpCall) -> str:
    return " and ".join(dict.fromkeys(spec.dtype for spec in call.inputs))
