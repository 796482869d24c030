"""Matrix products of a host graph by oneDNN, where the device multiplies with it (`device/products.py`).

It rewrites `mm` and `addmm` of float32 to the operator that Inductor calls from generated code.
"""

from __future__ import annotations

import torch
from torch import fx

from ...compiler.lower import onednn
from ..products import is_worthwhile

_MM, _ADDMM, _PERMUTE = torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.permute.default


def use_onednn(graph_module: fx.GraphModule) -> int:
    """Rewrite the products of host tensors that gain from it, in place; return how many."""
    onednn.register_lowerings()
    rewritten = [node for node in graph_module.graph.nodes if _gains(node)]
    for node in rewritten:
        bias, left, right = node.args if node.target == _ADDMM else (None, *node.args)
        with graph_module.graph.inserting_before(node):
            weight = graph_module.graph.call_function(_PERMUTE, (right, [1, 0]))
        weight.meta["val"] = right.meta["val"].t()
        node.target, node.args, node.kwargs = onednn.LINEAR, (left, weight, bias), {}
    graph_module.recompile()
    return len(rewritten)


def _gains(node: fx.Node) -> bool:
    if node.target not in (_MM, _ADDMM):
        return False
    *bias, left_MK, right_KN = values = [argument.meta["val"] for argument in node.args]
    if any(value.dtype != torch.float32 for value in values) or set(node.kwargs.values()) - {1}:
        return False
    if bias and (bias[0].shape != right_KN.shape[1:] or not bias[0].is_contiguous()):
        return False
    (height, width), (down, along) = right_KN.shape, right_KN.stride()
    is_read_as_it_lies = (along == 1 and down >= width) or (down == 1 and along >= height)
    return is_read_as_it_lies and is_worthwhile(len(left_MK), height, width)
