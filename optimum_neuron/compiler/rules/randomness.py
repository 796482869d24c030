"""Random numbers and dropout; drawing samples by weight needs the host."""

from __future__ import annotations

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table

table(
    "random",
    {
        "aten.bernoulli": "RngUniform Compare",
        "aten.exponential": "RngUniform Log Neg",
        "aten.native_dropout": "AwsNeuronDropoutMaskV1 Mul",
        "aten.normal": "RngBitGenerator Sqrt Log Cos Mul",
        "aten.rand": "RngUniform",
        "aten.rand_like": "RngUniform",
        "aten.randint": "RngUniform Floor ConvertElementType",
        "aten.randint_like": "RngUniform Floor ConvertElementType",
        "aten.randn": "RngBitGenerator Sqrt Log Cos Mul",
        "aten.randn_like": "RngBitGenerator Sqrt Log Cos Mul",
        "aten.uniform": "RngUniform",
    },
)


@rule("dropout", "aten.alpha_dropout", "aten.dropout", "aten.feature_alpha_dropout", "aten.feature_dropout")
def judge_dropout(call: OpCall, target: Target) -> Ruling:
    """Dropout does nothing outside training."""
    active = call.arguments["train"] and call.arguments["p"] > 0
    return accept(call, "dropout", "AwsNeuronDropoutMaskV1 Mul" if active else "")


@rule("multinomial", "aten.multinomial")
def judge_multinomial(call: OpCall, target: Target) -> Ruling:
    """Refuse sampling by weight."""
    return refuse(
        call,
        "multinomial",
        "NCC_EUOC002",
        "the compiler has no sampling by weight",
        remedy="return the logits and sample on the host, or add Gumbel noise and take the argmax",
    )
