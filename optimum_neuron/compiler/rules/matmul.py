"""Matmuls, and operators built on them: attention, recurrent layers, and mixtures of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, reject, rule, table
from .call import base_name

if TYPE_CHECKING:
    from torch import fx

_FIRST_CORE_WITHOUT_INT32 = 3
"""NeuronCore generation from which int32 products are refused (Neuron docs, neuronx-cc error code NCC_EVRF035)."""


@rule("matmul", "_int_mm _weight_int8pack_mm addbmm addmm addmv baddbmm bmm dot linear matmul mm mv")
def judge(call: OpCall, target: Target) -> Ruling:
    """Refuse a product of int64, and of int32 from trn2 on; earlier cores round it with a warning.

    Narrower integers are exact in float32 up to a sum of 2^24.
    """
    dtypes = {spec.dtype for spec in call.inputs}
    if "int64" in dtypes:
        return refuse(call, "NCC_EVRF035", "an operand is int64, and the engine multiplies in float32")
    if "int32" not in dtypes:
        return accept(call, "DotGeneral")
    if target.core.generation >= _FIRST_CORE_WITHOUT_INT32:
        return refuse(call, "NCC_EVRF035", f"an operand is int32, which {target.core.name} multiplies in float32")
    warning = "int32 is multiplied in float32, so results beyond 2^24 are rounded"
    return accept(call, "DotGeneral", code="NCC_EVRF035", warning=warning)


table(
    "attention",
    {
        "DotGeneral Mul Add AwsNeuronSoftmax": (
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_fused_attention_overrideable "
            "scaled_dot_product_attention"
        ),
        "DotGeneral Mul Add AwsNeuronSoftmaxBackward": (
            "_scaled_dot_product_flash_attention_for_cpu_backward "
            "_scaled_dot_product_fused_attention_overrideable_backward"
        ),
    },
)

table(
    "recurrent",
    {
        "DotGeneral Add Neg Exp Div Tanh Mul": "gru lstm",
        "DotGeneral Add Max": "rnn_relu",
        "DotGeneral Add Tanh": "rnn_tanh",
    },
)

table("grouped-matmul", {"DotGeneral": "_grouped_mm", "DotGeneral Mul": "_scaled_grouped_mm"})

reject(
    "grouped-matmul-fallback",
    "transformers.grouped_mm_fallback",
    code="NCC_EUOC002",
    reason="it loops over groups of tokens whose sizes are known only after routing",
    remedy='load the model with experts_implementation="batched_mm", whose shapes are static',
)

reject(
    "histogram",
    "histc",
    code="NCC_EUOC002",
    reason="the compiler does not count values into bins",
    remedy="sum a one_hot of fixed width instead; for experts of transformers models, load with "
    'experts_implementation="batched_mm"',
)

PRODUCT_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            *("aten.linear", "aten.matmul", "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot", "aten.inner"),
            *("aten.tensordot", "aten._grouped_mm", "aten.convolution", "aten._convolution"),
            *(f"aten.conv{dims}d" for dims in (1, 2, 3)),
            *(f"aten.conv_transpose{dims}d" for dims in (1, 2, 3)),
        ),
        (0, 1),
    ),
    **dict.fromkeys(("aten.addmm", "aten.addmv", "aten.addbmm", "aten.baddbmm", "aten.addr"), (1, 2)),
    "aten.einsum": (1,),
    "aten.convolution_backward": (0, 1, 2),
    **dict.fromkeys(
        (
            "aten.scaled_dot_product_attention",
            "aten._scaled_dot_product_flash_attention_for_cpu",
            "aten._scaled_dot_product_fused_attention_overrideable",
        ),
        (0, 1, 2),
    ),
    **dict.fromkeys(
        (
            "aten._scaled_dot_product_flash_attention_for_cpu_backward",
            "aten._scaled_dot_product_fused_attention_overrideable_backward",
        ),
        (0, 1, 2, 3),
    ),
    **dict.fromkeys(("neuron.quantized_linear", "neuron.quantized_experts", "neuron.quantized_experts_sum"), (0,)),
}
"""Operators that run on TensorE, without overload, with the positions of the operands, or lists of them, that it
multiplies."""


def product_operands(node: fx.Node) -> list[fx.Node]:
    """Return what TensorE multiplies in a call; empty for an operator that multiplies no matrices."""
    operands: list[fx.Node] = []
    for position in PRODUCT_OPERANDS.get(base_name(str(node.target)), ()):
        value: Any = node.args[position]
        operands += value if isinstance(value, (list, tuple)) else [value]
    return operands
