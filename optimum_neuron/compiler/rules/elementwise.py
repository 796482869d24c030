"""Element-wise arithmetic, comparisons and activations: every dtype rule on them is in `dtypes.py`.

Powers and shifts, which have rules of their own, are in `integers.py`.
"""

from __future__ import annotations

from .base import table

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
