"""Decomposition of an operator without a rule: torch's own decomposition of one call, recorded on fake tensors.

Torch's tracers patch `nn.Module` for the whole process, and this also runs in the thread that reports to `neuron-top`,
beside the program that is watched. It does not depend on targets; `judge.py` judges the calls that come out.
"""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Sequence
from typing import Any

from .call import OpCall, fakes_of


def decompose(call: OpCall) -> tuple[OpCall, ...] | None:
    """Return the core ATen calls that torch makes of a call, or None when it cannot decompose it.

    The result is empty for an operator that does nothing to its tensors.
    """
    import torch
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

    from ...upstream.torch import FakeTensorMode, OpOverload

    target = call.node.target
    if not isinstance(target, OpOverload):
        return None
    mode = FakeTensorMode(shape_env=ShapeEnv())
    with mode:
        # Fakes of this mode, so that tracing cannot touch the graph's own values.
        args, kwargs = fakes_of(call.node)
    with warnings.catch_warnings(), torch.no_grad(), mode:
        warnings.simplefilter("ignore")
        try:
            nodes = _recorded(target, args, kwargs)
        except GuardOnDataDependentSymNode:
            return None  # torch's own decomposition branches on values
    calls = tuple(OpCall.from_node(node) for node in nodes)
    return None if any(inner.op == call.op for inner in calls) else calls


def _recorded(target: Any, args: Any, kwargs: Any) -> list[Any]:
    """Nodes of the core ATen calls behind a call whose results it needs, in order."""
    from torch import Tensor, fx

    from ...upstream.torch import TorchDispatchMode, tree_leaves, tree_map_only

    table, graph = _table(target), fx.Graph()
    node_of: dict[int, Any] = {}  # by id of the value, which a node keeps alive

    def node(tensor: object) -> Any:
        if id(tensor) not in node_of:
            node_of[id(tensor)] = graph.placeholder(f"input_{len(node_of)}")
            node_of[id(tensor)].meta["val"] = tensor
        return node_of[id(tensor)]

    class Recorder(TorchDispatchMode):
        # Torch passes all arguments.
        def __torch_dispatch__(
            self,
            func: Any,
            types: Sequence[type],
            args: tuple[Any, ...] = (),
            kwargs: Any = None,
        ) -> Any:
            if func in table:
                with self:
                    result = table[func](*args, **kwargs)
                if result is not NotImplemented:
                    return result
            result = func(*args, **kwargs)
            call = graph.call_function(func, *tree_map_only(Tensor, node, (args, kwargs)))
            call.meta["val"] = result
            parts = [(call, result)]
            if isinstance(result, (tuple, list)):
                parts = [(graph.call_function(operator.getitem, (call, i)), part) for i, part in enumerate(result)]
            for made, value in parts:
                made.meta["val"] = value
                node_of[id(value)] = made
            return result

    with Recorder():
        result = target(*args, **kwargs)
    graph.output(tree_map_only(Tensor, node, tree_leaves(result)))
    graph.eliminate_dead_code()
    return [made for made in graph.nodes if made.op == "call_function"]


def _table(target: object) -> dict[Any, Any]:
    """Decompositions to core ATen, and torch's one of the operator itself even where it is core."""
    from ...upstream.torch import decomposition_table

    decompositions = decomposition_table
    return _core_table() | ({target: decompositions[target]} if target in decompositions else {})


@functools.cache
def _core_table() -> dict[Any, Any]:
    from ...upstream.torch import core_aten_decompositions

    return dict(core_aten_decompositions().items())
