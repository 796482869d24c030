"""FX bodies as JSON, and the names of subprograms by their content.

A body is a list of calls of registered ATen overloads with plain arguments; `deserialize.py` reads it. The same text,
without names and source positions, is the content that a subprogram is named by.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from typing import TYPE_CHECKING, Any

from ..base.core import TensorSpec
from .aliasing import mutated_arguments
from .ir import Subprogram

if TYPE_CHECKING:
    import torch
    from torch import fx


def tensor_spec(value: torch.Tensor) -> TensorSpec:
    """Static shape and dtype of a tensor, real or fake."""
    return TensorSpec(shape=tuple(int(d) for d in value.shape), dtype=str(value.dtype).removeprefix("torch."))


def make_subprogram(body: fx.GraphModule) -> Subprogram:
    """Name a body by its content and collect its signature from `node.meta["val"]`."""
    import torch

    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    results = next(node for node in body.graph.nodes if node.op == "output").args[0]
    text = json.dumps(body_to_dict(body, canonical=True), sort_keys=True)
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in [*inputs, *results])
    return Subprogram(
        name="sub_" + hashlib.sha256(text.encode()).hexdigest()[:16],
        body=body,
        inputs=tuple(tensor_spec(node.meta["val"]) for node in inputs),
        outputs=tuple(tensor_spec(node.meta["val"]) for node in results),
        mutated=mutated_arguments(body),
    )


def body_to_dict(body: fx.GraphModule, *, canonical: bool = False) -> dict[str, Any]:
    """Plain data of a body; `canonical` leaves out names and source positions."""
    names: dict[fx.Node, str] = {}
    inputs, nodes, outputs = [], [], []
    for node in body.graph.nodes:
        names[node] = f"v{len(names)}"
        if node.op == "placeholder":
            inputs.append({**vars(tensor_spec(node.meta["val"]))})
        elif node.op == "output":
            outputs = [_encode(value, names) for value in node.args[0]]
        else:
            assert node.op == "call_function", f"{node.op} in an ATen body"
            entry = {
                "op": _op_name(node.target),
                "args": [_encode(value, names) for value in node.args],
                "kwargs": {key: _encode(value, names) for key, value in sorted(node.kwargs.items())},
            }
            if not canonical:
                entry |= {key: node.meta.get(key, "") for key in ("module_path", "source_line")}
            nodes.append(entry)
    return {"inputs": inputs, "nodes": nodes, "outputs": outputs}


def _op_name(target: Any) -> str:
    if target is operator.getitem:
        return "getitem"
    namespace, name = target._schema.name.split("::")
    return f"{namespace}.{name}.{target._overloadname}"


def _encode(value: object, names: dict[fx.Node, str]) -> Any:
    import torch
    from torch import fx

    if isinstance(value, fx.Node):
        return {"ref": int(names[value][1:])}
    if isinstance(value, (list, tuple)):
        return [_encode(item, names) for item in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": value.type}
    raise AssertionError(f"argument {value!r} of type {type(value).__name__} in an ATen graph")
