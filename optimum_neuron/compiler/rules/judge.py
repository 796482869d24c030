"""The order of judgement: static shapes, dense layouts, its own rule, dtypes, constants, torch's decomposition.

No tensor may have a size that is known only while the graph runs. The call that makes such a size is refused with a
specific remedy; calls that use the result are refused too, because a core runs them no better if the call runs on the
host.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ...base.core import Ruling, TensorSpec, Verdict
from . import constants, neuroncore_v1
from .base import OpCall, Target, find_rule, refuse
from .codes import CODES
from .decompose import decompose

if TYPE_CHECKING:
    from torch.fx import Node


RULE = "decomposition-of-torch"
"""Name of the rule for operators that no module covers."""

UNKNOWN = "unknown-operator"
"""Name of the rule that refuses operators that no module covers and torch cannot decompose."""

_FLOAT64_REMEDY = (
    "convert model and inputs to float32 with .float(), and pass dtype=torch.float32 where a tensor is made"
)


def judge_call(call: OpCall, target: Target) -> Ruling:
    """Return the verdict on one call.

    An operator's own error comes before an error of its dtype, because its code is more specific. NeuronCore-v1 takes
    less than the rules accept.
    """
    ruling = _judge(call, target)
    if target.core.generation > 1 or ruling.verdict is Verdict.UNSUPPORTED:
        return ruling
    return neuroncore_v1.limit(call, ruling, lambda part: judge_call(part, target), target.asked_for)


def _judge(call: OpCall, target: Target) -> Ruling:
    rule = find_rule(call.op)
    if rule is not None and not rule.touches_data:
        return rule.judge(call, target)
    unrunnable = judge_shapes(call) or _judge_layout(call)
    if unrunnable is not None:
        return unrunnable
    ruling = rule.judge(call, target) if rule else None
    if ruling and ruling.verdict is Verdict.UNSUPPORTED:
        return ruling
    by_dtype = None if rule is not None and rule.judges_dtypes else _judge_dtypes(call, target)
    return by_dtype or constants.judge(call) or ruling or _judge_unknown(call, target)


def _judge_layout(call: OpCall) -> Ruling | None:
    if not call.sparse:
        return None
    remedy = "convert the tensors with .to_dense() before compiling, and multiply by masks"
    return refuse(call, "NCC_EUOC002", "a NeuronCore has dense tensors only", remedy=remedy, rule="layout")


def _judge_dtypes(call: OpCall, target: Target) -> Ruling | None:
    """Refuse a dtype that the core has no arithmetic for, whatever the operator.

    64-bit integers pass: they index and count, and the compiler narrows them; matmuls and powers have separate rules.
    """
    for dtype in dict.fromkeys(spec.dtype for spec in call.tensors):
        if dtype not in (*target.core.dtypes, "int64", "uint64"):
            reason = f"{target.core.name} has no arithmetic for {dtype}"
            remedy = _FLOAT64_REMEDY if dtype == "float64" else None
            return refuse(call, _dtype_code(dtype), reason, remedy=remedy, rule="dtype")
    return None


def _dtype_code(dtype: str) -> str:
    if dtype.startswith("complex"):
        return "NCC_EVRF004"
    if dtype.endswith("fnuz"):
        return "NCC_EVRF005"
    if dtype == "float8_e4m3fn":
        return "NCC_EVRF051"
    return "NCC_ESPP047" if dtype.startswith("float8") else "NCC_ESPP004"


def _judge_unknown(call: OpCall, target: Target) -> Ruling:
    """Judge an operator without a rule by its decomposition."""
    if not call.outputs and call.op.startswith("python."):
        return _accept(call, Verdict.NATIVE, "computes on sizes while compiling")
    parts = decompose(call)
    if parts is None:
        return refuse(call, "NCC_EUOC002", "no rule knows this operator, and torch cannot decompose it", rule=UNKNOWN)
    if not parts:
        return _accept(call, Verdict.NATIVE, "does no work")
    for part in parts:
        inner = judge_call(part, target)
        if inner.verdict is Verdict.UNSUPPORTED:
            reason = f"it is made of {part.op}: {inner.reason}"
            return dataclasses.replace(
                inner, op=call.op, reason=reason, module_path=call.module_path, source_line=call.source_line
            )
    names = sorted({part.op for part in parts})
    return _accept(call, Verdict.DECOMPOSED, f"torch decomposes it into {', '.join(names)}")


def _accept(call: OpCall, verdict: Verdict, reason: str) -> Ruling:
    return Ruling(
        verdict=verdict,
        op=call.op,
        rule=RULE,
        reason=reason,
        source="torch 2.13, core ATen decompositions",
        module_path=call.module_path,
        source_line=call.source_line,
    )


MAKES = "data-dependent-size"
"""Name of the rule that refuses the maker of an unknown size."""

USES = "unknown-size"
"""Name of the rule that refuses the users of an unknown size."""

_CODE = "NCC_EMOD025"
_READS = dict.fromkeys(
    ("aten._local_scalar_dense", "aten.item"), "keep the value in a tensor, and select with torch.where"
)
_REMEDIES = {
    **_READS,
    "aten.bincount": "sum a one_hot of fixed width",
    "aten.index": "multiply by the mask or use torch.where instead of selecting with a boolean mask",
    "aten.masked_select": "multiply by the mask or use torch.where: the size stays that of the input",
    "aten.nonzero": "keep the boolean mask and use torch.where, or take torch.topk of the mask with a fixed k",
    "aten.repeat_interleave": "repeat a fixed number of times, or gather with positions of a fixed size",
}


def judge_shapes(call: OpCall) -> Ruling | None:
    """Refuse a call that makes or uses a size unknown at compile time; None lets it pass."""
    remedy = _REMEDIES.get(call.name)
    made = sorted(call.output_symbols - call.input_symbols)
    if made and call.name in _READS:
        reason = "it hands the value of a tensor to Python, where shapes could depend on it"
        return refuse(call, _CODE, reason, remedy=remedy, rule=MAKES)
    if made:
        unknown = ", ".join(_text(spec) for spec in call.outputs if -1 in spec.shape)
        reason = f"the size of its result depends on values ({unknown}, ? is unknown)"
        return refuse(call, _CODE, reason, remedy=remedy, rule=MAKES)
    if any(-1 in spec.shape for spec in call.tensors):
        reason = f"it works on a size that is not known ({', '.join(sorted(call.input_symbols | call.output_symbols))})"
        return refuse(call, _CODE, reason, remedy="make the size static where it comes from", rule=USES)
    return None


def judge_input(node: Node) -> Ruling:
    """Refuse a graph input whose size is left open."""
    shape = ", ".join(str(size) for size in node.meta["val"].shape)
    return Ruling(
        verdict=Verdict.UNSUPPORTED,
        op=f"graph input '{node.name}'",
        rule=MAKES,
        code=_CODE,
        reason=f"its shape is open: [{shape}]",
        source=f"Neuron docs, neuronx-cc error code {_CODE}",
        remedy=CODES[_CODE].remedy,
    )


def _text(spec: TensorSpec) -> str:
    return f"{spec.dtype}[{', '.join('?' if size < 0 else str(size) for size in spec.shape)}]"
