"""Convolutions: a transposed one dilates its input by its stride, which cannot be combined with a dilated kernel."""

from __future__ import annotations

from typing import Any

from ...core import Ruling
from .base import OpCall, Target, accept, refuse, rule


@rule("convolution", "_convolution conv1d conv2d conv3d convolution")
def judge(call: OpCall, target: Target) -> Ruling:
    """Judge a convolution, which `aten.convolution` may transpose."""
    return _judge(call, "convolution", dilates_input=bool(call.arguments.get("transposed")))


@rule("transposed-convolution", "conv_transpose1d conv_transpose2d conv_transpose3d")
def judge_transposed(call: OpCall, target: Target) -> Ruling:
    """Judge a transposed convolution."""
    return _judge(call, "transposed-convolution", dilates_input=True)


@rule("convolution-backward", "convolution_backward")
def judge_backward(call: OpCall, target: Target) -> Ruling:
    """Judge the gradient of a convolution: the one of the input is a transposed convolution."""
    return _judge(
        call,
        "convolution-backward",
        dilates_input=not call.arguments["transposed"] and call.arguments["output_mask"][0],
    )


def _judge(call: OpCall, rule_name: str, *, dilates_input: bool) -> Ruling:
    stride, dilation = _largest(call.arguments["stride"]), _largest(call.arguments["dilation"])
    if dilates_input and stride > 1 and dilation > 1:
        return refuse(
            call,
            rule_name,
            "NCC_EVRF010",
            f"stride {stride} spreads the input while dilation {dilation} spreads the kernel",
        )
    return accept(call, rule_name, "Convolution")


def _largest(value: Any) -> int:
    return max(value) if isinstance(value, (list, tuple)) else int(value)
