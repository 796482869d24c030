"""Tensors made from nothing: constants, ranges, random numbers. Drawing samples by weight needs the host."""

from __future__ import annotations

from ...base.core import Ruling
from .base import OpCall, Target, accept, reject, rule, table

table(
    "creation",
    {
        "Iota": "arange",
        "Constant": (
            "_efficientzerotensor empty empty_like empty_permuted empty_strided full full_like new_empty new_full "
            "new_ones new_zeros ones ones_like scalar_tensor tril_indices triu_indices zeros zeros_like"
        ),
        "Iota Compare": "eye",
        "Iota Mul Add": "linspace",
        "Iota Mul Add Exp": "logspace",
    },
)

table(
    "random",
    {
        "RngUniform Compare": "bernoulli",
        "RngUniform Log Neg": "exponential",
        "AwsNeuronDropoutMaskV1 Mul": "native_dropout",
        "RngBitGenerator Sqrt Log Cos Mul": "normal randn randn_like",
        "RngUniform": "rand rand_like uniform",
        "RngUniform Floor ConvertElementType": "randint randint_like",
    },
)


@rule("dropout", "alpha_dropout dropout feature_alpha_dropout feature_dropout")
def judge_dropout(call: OpCall, target: Target) -> Ruling:
    """Dropout does nothing outside training."""
    active = call.arguments["train"] and call.arguments["p"] > 0
    return accept(call, "AwsNeuronDropoutMaskV1 Mul" if active else "")


reject(
    "multinomial",
    "multinomial",
    code="NCC_EUOC002",
    reason="the compiler has no sampling by weight",
    remedy="return the logits and sample on the host, or add Gumbel noise and take the argmax",
)
