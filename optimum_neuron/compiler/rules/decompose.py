"""Decomposition of an operator without a rule: torch's own decomposition of one call, traced on fake tensors.

It does not depend on targets; `judge.py` judges the calls that come out.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

from .call import OpCall, values_of


def decompose(call: OpCall) -> tuple[OpCall, ...] | None:
    """Return the core ATen calls that torch makes of a call, or None when it cannot decompose it.

    The result is empty for an operator that does nothing to its tensors.
    """
    import torch
    from torch._ops import OpOverload
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
    from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

    target = call.node.target
    if not isinstance(target, OpOverload):
        return None
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with mode:
        # Fakes of this mode, so that tracing cannot touch the graph's own values.
        values = tree_map_only(
            torch.Tensor,
            lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device),
            values_of(call.node),
        )
    leaves, spec = tree_flatten(values)
    places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def run(*tensors: Any) -> Any:
        for place, tensor in zip(places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, spec)
        return target(*args, **kwargs)

    with warnings.catch_warnings(), torch.no_grad(), mode:
        warnings.simplefilter("ignore")
        try:
            graph = make_fx(run, decomposition_table=_table(target))(*(leaves[place] for place in places)).graph
        except GuardOnDataDependentSymNode:
            return None  # torch's own decomposition branches on values
    calls = tuple(OpCall.from_node(node) for node in graph.nodes if node.op == "call_function")
    return None if any(inner.op == call.op for inner in calls) else calls


def _table(target: Any) -> dict[Any, Any]:
    """Decompositions to core ATen, and torch's one of the operator itself even where it is core."""
    import torch

    decompositions = torch._decomp.decomposition_table
    return _core_table() | ({target: decompositions[target]} if target in decompositions else {})


@functools.cache
def _core_table() -> dict[Any, Any]:
    import torch

    return dict(torch._decomp.core_aten_decompositions().items())
