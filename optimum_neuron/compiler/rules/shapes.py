"""Static shapes: no tensor may have a size that is known only while the graph runs.

The call that makes such a size is refused with a specific remedy; calls that use the result are refused too, because a
core runs them no better if the call runs on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...base.core import Ruling, TensorSpec, Verdict
from .base import OpCall, refuse
from .codes import CODES

if TYPE_CHECKING:
    from torch.fx import Node

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


def judge(call: OpCall) -> Ruling | None:
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
