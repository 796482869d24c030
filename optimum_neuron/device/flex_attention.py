"""FlexAttention on the device, eager and compiled; it computes all scores, including those that the block mask skips.

In eager mode it runs as torch's own unfused operators, with gradients, once a check of torch for devices from a list,
which has no "neuron", lets it. In a captured graph torch keeps it as one operator with graphs inside, and Inductor has
kernels for it on its own devices only. So it is written out as matrix products, score function, mask and softmax before
AOTAutograd runs, and is checked, differentiated, and compiled like other code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..upstream.torch import FLEX_ATTENTION_DEVICES

if TYPE_CHECKING:
    from torch import fx


def install() -> None:
    """Let `flex_attention` take tensors of the device."""
    FLEX_ATTENTION_DEVICES.replace(_taking_device)


def _taking_device(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def validate_device(query: Any, key: Any, value: Any) -> None:
        if query.device.type != "neuron":
            original(query, key, value)

    return validate_device


def write_out(graph_module: fx.GraphModule) -> None:
    """Replace each FlexAttention of a graph of Dynamo, in place."""
    from ..upstream.torch import flex_attention, sdpa_dense

    nodes = graph_module.graph.find_nodes(op="call_function", target=flex_attention)
    for node in nodes:
        node.target = sdpa_dense
    if nodes:
        graph_module.recompile()
