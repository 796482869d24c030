"""Divide a body into what all cores of a group compute alike, which the host computes once, and what differs.

A value is the same on every core if it is computed from values that are. A tensor that a body computes and then writes
in place counts as different: its writes and its readers stay together, in their order, on every core.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from ..ir import Subprogram
from ..serialize import shares_memory, written_tensors
from .pieces import Piece, pieces_of


def divide(subprogram: Subprogram, own: Collection[int]) -> list[Piece]:
    """Return the part of a body that is the same on every core, and the part that differs; without one, the other.

    The second part computes views, constants, and masks again instead of taking them from the first: host code finds
    the mask of experts that a token chose beside these (`lower/experts.py`).

    Args:
        own: positions of the arguments that differ between cores.
    """
    body = subprogram.body
    differing = _differing(body, own)
    nodes = [node for node in body.graph.nodes if node.op == "call_function"]
    each, once = differing.intersection(nodes), set[fx.Node]()
    for node in reversed(nodes):
        if node in differing:
            continue
        is_cheap = shares_memory(node) or not node.all_input_nodes or _is_mask(node)
        if is_cheap and any(user in each for user in node.users):
            each.add(node)
        if node not in each or any(user.op == "output" or user in once for user in node.users):
            once.add(node)
    return pieces_of(body, ([node for node in nodes if node in group] for group in (once, each)))


def _is_mask(node: fx.Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.dtype == torch.bool


def _differing(body: fx.GraphModule, own: Collection[int]) -> set[fx.Node]:
    """Return the nodes of which cores have different values."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    differing = {inputs[position] for position in own}
    differing |= written_tensors(body).difference(inputs)
    for node in body.graph.nodes:
        if not differing.isdisjoint(node.all_input_nodes):
            differing.add(node)
    return differing
