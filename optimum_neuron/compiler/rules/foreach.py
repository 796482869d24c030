"""Lists of tensors in one call, as compiled optimizers have them: each tensor is computed as by the operator of one."""

from __future__ import annotations

from .base import table

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

table(
    "fused-optimizer",
    {
        "Mul Add Sqrt Div Sub": "_fused_adagrad _fused_adam _fused_adamw",
        "Mul Add Sub": "_fused_sgd",
    },
)
