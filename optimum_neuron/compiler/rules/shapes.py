"""Static shapes: no tensor may have a size that is known only while the graph runs.

The call that makes such a size is refused with a remedy of its own; calls that work on the result are refused too,
because a core runs them no better when the maker runs on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import Ruling, Verdict
from .base import OpCall, refuse
from .codes import CODES

if TYPE_CHECKING:
    from torch.fx import Node

MAKES = "data-dependent-size"
"""Name of the rule that refuses the maker of an unknown size."""

USES = "unknown-size"
"""Name of the rule that refuses the users of an unknown size."""

_CODE = "NCC_EMOD025"
_READS = ("aten._local_scalar_dense", "aten.item")
_REMEDIES = {
    "aten._local_scalar_dense": "keep the value in a tensor, and select with torch.where",
    "aten.bincount": "sum a one_hot of fixed width",
    "aten.index": "multiply by the mask or use torch.where instead of selecting with a boolean mask",
    "aten.item": "keep the value in a tensor, and select with torch.where",
    "aten.masked_select": "multiply by the mask or use torch.where: the size stays that of the input",
    "aten.nonzero": "keep the boolean mask and use torch.where, or take torch.topk of the mask with a fixed k",
    "aten.repeat_interleave": "repeat a fixed number of times, or gather with positions of a fixed size",
}


def judge(call: OpCall) -> Ruling | None:
    """Refuse a call that makes or uses a size unknown at compile time; None lets it pass."""
    made = sorted(call.output_symbols - call.input_symbols)
    if made and call.name in _READS:
        return refuse(
            call,
            MAKES,
            _CODE,
            "it hands the value of a tensor to Python, where shapes could depend on it",
            remedy=_REMEDIES[call.name],
        )
    if made:
        unknown = ", ".join(_text(spec.shape, spec.dtype) for spec in call.outputs if -1 in spec.shape)
        return refuse(
            call,
            MAKES,
            _CODE,
            f"the size of its result depends on values ({unknown}, ? is unknown)",
            remedy=_REMEDIES.get(call.name),
        )
    if any(-1 in spec.shape for spec in call.tensors):
        return refuse(
            call,
            USES,
            _CODE,
            f"it works on a size that is not known ({', '.join(_used(call))})",
            remedy="make the size static where it comes from",
        )
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


def _used(call: OpCall) -> list[str]:
    return sorted(call.input_symbols | call.output_symbols)


def _text(shape: tuple[int, ...], dtype: str) -> str:
    return f"{dtype}[{', '.join('?' if size < 0 else str(size) for size in shape)}]"
