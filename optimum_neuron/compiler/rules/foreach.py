"""Lists of tensors in one call, as compiled optimizers have them: each tensor is computed as by the operator of one."""

from __future__ import annotations

from .base import table

table(
    "foreach",
    {
        "aten._foreach_abs": "Abs",
        "aten._foreach_add": "Add",
        "aten._foreach_addcdiv": "Div Mul Add",
        "aten._foreach_addcmul": "Mul Add",
        "aten._foreach_clamp_max": "Min",
        "aten._foreach_clamp_min": "Max",
        "aten._foreach_copy": "ConvertElementType",
        "aten._foreach_div": "Div",
        "aten._foreach_exp": "Exp",
        "aten._foreach_lerp": "Sub Mul Add",
        "aten._foreach_log": "Log",
        "aten._foreach_max": "Reduce",
        "aten._foreach_maximum": "Max",
        "aten._foreach_minimum": "Min",
        "aten._foreach_mul": "Mul",
        "aten._foreach_neg": "Neg",
        "aten._foreach_norm": "Mul Reduce Sqrt",
        "aten._foreach_pow": "Pow",
        "aten._foreach_reciprocal": "Div",
        "aten._foreach_rsqrt": "Rsqrt",
        "aten._foreach_sign": "Sign",
        "aten._foreach_sqrt": "Sqrt",
        "aten._foreach_sub": "Sub",
        "aten._foreach_zero": "Broadcast",
    },
)

table(
    "fused-optimizer",
    {
        "aten._fused_adagrad": "Mul Add Sqrt Div Sub",
        "aten._fused_adam": "Mul Add Sqrt Div Sub",
        "aten._fused_adamw": "Mul Add Sqrt Div Sub",
        "aten._fused_sgd": "Mul Add Sub",
    },
)
