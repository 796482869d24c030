"""Element-wise operators, also of lists of tensors, as compiled optimizers call them. `judge.py` checks dtypes."""

from __future__ import annotations

from ...base.core import Ruling
from .base import OpCall, Target, accept, refuse, rule, table

table(
    "arithmetic",
    {
        "Pow Mul": "__lshift__ bitwise_left_shift",
        "Abs": "abs",
        "Add": "add",
        "Div Mul Add": "addcdiv",
        "Mul Add": "addcmul",
        "Ceil": "ceil",
        "Clamp": "clamp clip",
        "Min": "clamp_max minimum",
        "Max": "clamp_min maximum",
        "Compare Abs Neg Select": "copysign",
        "Div": "div reciprocal true_divide",
        "Floor": "floor",
        "Div Floor": "floor_divide",
        "Compare Max Select": "fmax",
        "Compare Min Select": "fmin",
        "Div Abs Floor Sign Mul Sub": "fmod",
        "Mul Add Sqrt": "hypot",
        "Sub Mul Add": "lerp",
        "Mul": "mul square",
        "Neg": "neg",
        "Div Floor Mul Sub": "remainder",
        "Floor Sub Compare Select": "round",
        "Sub": "rsub sub",
        "Sign": "sign",
        "Sign Abs Floor Mul": "trunc",
    },
)

table(
    "transcendental",
    {
        "Mul Sub Sqrt Atan2": "acos asin",
        "Mul Sub Sqrt Add Log": "acosh",
        "Mul Add Sqrt Log": "asinh",
        "Atan2": "atan atan2",
        "Add Sub Div Log Mul": "atanh",
        "Cos": "cos",
        "Exp Add Mul": "cosh",
        "AwsNeuronErf": "erf",
        "AwsNeuronErf Neg Add": "erfc",
        "Exp": "exp",
        "Mul Exp": "exp2",
        "Exp Sub": "expm1",
        "Log": "log",
        "Log Mul": "log10 log2",
        "Add Log": "log1p",
        "Rsqrt": "rsqrt",
        "Sin": "sin",
        "Exp Sub Mul": "sinh",
        "Sqrt": "sqrt",
        "Sin Cos Div": "tan",
        "Tanh": "tanh",
    },
)

table(
    "comparison",
    {
        "LogicalAnd": "__and__ bitwise_and logical_and",
        "LogicalNot LogicalAnd": "__or__ __xor__ bitwise_or bitwise_xor logical_or logical_xor",
        "LogicalNot": "bitwise_not logical_not",
        "Compare": "eq ge gt isnan le lt ne signbit",
        "Abs Compare": "isinf",
        "Select": "masked_fill where",
    },
)

table(
    "activation",
    {
        "Exp Sub Compare Select": "elu",
        "AwsNeuronGelu": "gelu",
        "Add Clamp Div": "hardsigmoid",
        "Add Clamp Mul Div": "hardswish",
        "Clamp": "hardtanh",
        "Compare Mul Select": "leaky_relu prelu rrelu_with_noise",
        "Exp Add Log Tanh Mul": "mish",
        "Max": "relu",
        "Neg Exp Add Div": "sigmoid",
        "AwsNeuronSilu": "silu",
        "Exp Add Log": "softplus",
        "Mul Sub": "tanh_backward",
        "Compare Select": "threshold threshold_backward",
    },
)

table(
    "foreach",
    {
        "Abs": "_foreach_abs",
        "Add": "_foreach_add",
        "Div Mul Add": "_foreach_addcdiv",
        "Mul Add": "_foreach_addcmul",
        "Min": "_foreach_clamp_max _foreach_minimum",
        "Max": "_foreach_clamp_min _foreach_maximum",
        "ConvertElementType": "_foreach_copy",
        "Div": "_foreach_div _foreach_reciprocal",
        "Exp": "_foreach_exp",
        "Sub Mul Add": "_foreach_lerp",
        "Log": "_foreach_log",
        "Reduce": "_foreach_max",
        "Mul": "_foreach_mul",
        "Neg": "_foreach_neg",
        "Mul Reduce Sqrt": "_foreach_norm",
        "Pow": "_foreach_pow",
        "Rsqrt": "_foreach_rsqrt",
        "Sign": "_foreach_sign",
        "Sqrt": "_foreach_sqrt",
        "Sub": "_foreach_sub",
        "Broadcast": "_foreach_zero",
    },
)

_ADAPTIVE = "_fused_adagrad _fused_adam _fused_adamw"
table("fused-optimizer", {"Mul Add Sqrt Div Sub": _ADAPTIVE, "Mul Add Sub": "_fused_sgd"})


@rule("power", "pow")
def judge_power(call: OpCall, target: Target) -> Ruling:
    """Refuse a power that is computed in int64."""
    if call.outputs[0].dtype == "int64":
        return refuse(call, "NCC_EVRF062", "it is computed in int64, which would be cut to int32")
    return accept(call, "Pow")


@rule("right-shift", "bitwise_right_shift __rshift__ __irshift__")
def judge_shift(call: OpCall, target: Target) -> Ruling:
    """Refuse a right shift whose first operand is not 32 bits wide."""
    dtype = call.inputs[0].dtype
    if dtype not in ("int32", "uint32", "float32"):
        return refuse(call, "NCC_EVRF022", f"the shifted tensor is {dtype}, not 32 bits wide")
    return accept(call, "ShiftRightArithmetic")
