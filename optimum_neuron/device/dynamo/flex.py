"""FlexAttention in a captured graph: written out as matrix products, score function, mask and softmax.

torch keeps an attention with functions of scores and masks as one operator with graphs inside, for which Inductor has
kernels of its own devices. Written out before AOTAutograd sees it, the operator is checked, differentiated and compiled
like any other code. It computes all scores, also those of blocks that the block mask leaves out.
"""

from __future__ import annotations

from torch import fx


def write_out(graph_module: fx.GraphModule) -> None:
    """Replace each FlexAttention of a graph of Dynamo, in place.

    Args:
        graph_module: the graph, before AOTAutograd.
    """
    from torch._higher_order_ops.flex_attention import flex_attention, sdpa_dense

    found = graph_module.graph.find_nodes(op="call_function", target=flex_attention)
    for node in found:
        node.target = sdpa_dense
    if found:
        graph_module.recompile()
