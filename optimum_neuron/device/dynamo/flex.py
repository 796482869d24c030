"""FlexAttention in a captured graph: written out as matrix products, score function, mask and softmax.

torch keeps FlexAttention as one operator with graphs inside, and Inductor has kernels for it on its own devices only.
This module replaces the operator before AOTAutograd runs, so the result is checked, differentiated, and compiled like
other code. It computes all scores, also the scores that the block mask skips.
"""

from __future__ import annotations

from torch import fx


def write_out(graph_module: fx.GraphModule) -> None:
    """Replace each FlexAttention of a graph of Dynamo, before AOTAutograd, in place."""
    from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense

    nodes = graph_module.graph.find_nodes(op="call_function", target=flex_attention)
    for node in nodes:
        node.target = sdpa_dense
    if nodes:
        graph_module.recompile()
