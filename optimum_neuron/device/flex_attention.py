"""FlexAttention on the device, eager and compiled; it computes all scores, including those that the block mask skips.

In eager mode it runs as torch's own unfused operators, with gradients, once a check of torch for devices from a list,
which has no "neuron", lets it. In a captured graph torch keeps it as one operator with graphs inside, and Inductor has
kernels for it on its own devices only. So it is written out as matrix products, score function, mask and softmax before
AOTAutograd runs, and is checked, differentiated, and compiled like other code. As in torch's operator, the largest
scores have no gradient.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..upstream.torch import FLEX_ATTENTION_DEVICES

if TYPE_CHECKING:
    from torch import fx

_MAX_SCORES = 2
"""Place of the largest scores in the results of the operator."""


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
    """Replace each FlexAttention of a graph of Dynamo and of the graphs inside it, in place."""
    from torch import fx

    from ..upstream.torch import flex_attention, sdpa_dense

    for module in graph_module.modules():
        if not isinstance(module, fx.GraphModule):
            continue
        nodes = module.graph.find_nodes(op="call_function", target=flex_attention)
        for node in nodes:
            node.target = sdpa_dense
            _detach_max_scores(node)
        if nodes:
            module.recompile()


def _detach_max_scores(attention: fx.Node) -> None:
    graph = attention.graph
    for part in [use for use in attention.users if use.target is operator.getitem and use.args[1] == _MAX_SCORES]:
        with graph.inserting_after(part):
            detached = graph.call_method("detach", (part,))
        detached.meta = dict(part.meta)
        part.replace_all_uses_with(detached, delete_user_cb=lambda user, kept=detached: user is not kept)
