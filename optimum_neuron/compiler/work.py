"""How much arithmetic one call of an operator is, from its shapes alone.

Matrix products, attention and convolutions are counted as torch counts them (`torch.utils.flop_counter`): two for each
multiply-add. Other arithmetic is one for each element of the call's largest tensor, whatever the function; what only
moves data is none. It knows nothing of targets or time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from .rules.base import find_rule
from .rules.call import OpCall
from .rules.decompose import decompose
from .rules.scatter import combines

Counted = Literal["products", "elements", "none", "unknown"]

PRODUCTS = (
    *("attention", "convolution", "convolution-backward", "grouped-matmul", "grouped-matmul-fallback", "matmul"),
    *("recurrent", "transposed-convolution"),
)
"""Rules of operators that multiply matrices."""

MOVES = (
    *("bookkeeping", "cast", "creation", "dropout", "embedding", "gather", "movement", "one-hot", "subgraph", "view"),
    "write",
)
"""Rules of operators that compute nothing in inference."""

SCATTER = "scatter"
"""Rule of writes, which compute only where they add to what is there."""

_FORMULAS: dict[str, Callable[..., int]] = {
    "aten._grouped_mm": lambda left, right, *_: 2 * left.num_elements * right.shape[-1],
    "aten._int_mm": lambda left, right: 2 * left.num_elements * right.shape[-1],
    "aten._weight_int8pack_mm": lambda left, right, *_: 2 * left.num_elements * right.shape[0],
    "aten.addbmm": lambda _, left, right: 2 * left.num_elements * right.shape[-1],
    "aten.addmv": lambda _, matrix, vector: 2 * matrix.num_elements,
    "aten.dot": lambda left, right: 2 * left.num_elements,
    "aten.mv": lambda matrix, vector: 2 * matrix.num_elements,
    "transformers.grouped_mm_fallback": lambda left, right, *_: 2 * left.num_elements * right.shape[-1],
}
"""Products that torch's counter does not know, from the specs of their tensors: two for each multiply-add."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Arithmetic of one call."""

    flops: int
    """Operations; 0 where the sizes are not known."""
    counted: Counted
    """What was counted: multiply-adds of products, elements, none for moves, or unknown sizes."""


def work_of(call: OpCall) -> Work:
    """Count the arithmetic of one call.

    Example:
        ```python
        import torch
        from optimum_neuron.compiler.work import work_of
        from optimum_neuron.compiler.rules.call import OpCall

        exported = torch.export.export(torch.nn.Linear(16, 4), (torch.randn(2, 16),), strict=False)
        (linear,) = [node for node in exported.graph.nodes if node.op == "call_function"]
        assert work_of(OpCall.from_node(linear)).flops == 2 * 2 * 16 * 4
        ```
    """
    if any(-1 in spec.shape for spec in call.tensors):
        return Work(flops=0, counted="unknown")
    rule = find_rule(call.op)
    if rule is None:
        return _of_parts(call)
    if rule.name in MOVES or (rule.name == SCATTER and not combines(call)):
        return Work(flops=0, counted="none")
    if rule.name in PRODUCTS:
        formula = _FORMULAS.get(call.name)
        return Work(flops=formula(*call.inputs) if formula else _torch_counts(call), counted="products")
    return _elements(call)


def _elements(call: OpCall) -> Work:
    return Work(flops=max((spec.num_elements for spec in call.tensors), default=0), counted="elements")


def _of_parts(call: OpCall) -> Work:
    """The work of what torch makes of an operator without a rule."""
    parts = decompose(call)
    if parts is None:
        return _elements(call)
    works = [work_of(part) for part in parts]
    kinds: tuple[Counted, ...] = ("unknown", "products", "elements", "none")
    found = [kind for kind in kinds if any(work.counted == kind for work in works)]
    return Work(flops=sum(work.flops for work in works), counted=found[0] if found else "none")


def _torch_counts(call: OpCall) -> int:
    """Call the operator on the meta device, where torch takes it apart into what its counter knows."""
    import torch
    from torch.fx.node import map_arg
    from torch.utils._pytree import tree_map_only
    from torch.utils.flop_counter import FlopCounterMode

    values: Any = map_arg((call.node.args, call.node.kwargs), lambda node: node.meta["val"])
    args, kwargs = tree_map_only(torch.Tensor, _on_meta, values)
    assert callable(call.node.target)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        call.node.target(*args, **kwargs)
    return counter.get_total_flops()


def _on_meta(tensor: Any) -> Any:
    import torch

    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
