"""FX bodies as JSON, and the names of subprograms by their content.

A body is a list of calls of registered ATen overloads with plain arguments. The same text, without names and source
positions, is the content that a subprogram is named by.

Reading executes nothing that a file says. torch's own `.pt2` reader falls back to full unpickling for sample inputs
(torch 2.13, `torch/_export/serde/serialize.py: deserialize_torch_artifact`), so a stored program would be able to run
code. Here only registered operators of two namespaces are called, with plain arguments; anything else is an error.

A subprogram says which arguments its body writes: `base_of` follows views and results in place to the tensor whose
memory they are.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from typing import TYPE_CHECKING, Any

from .. import nki
from ..base.core import TensorSpec
from ..errors import ArtifactError
from ..upstream import torch as private
from ..upstream.torch import schema_of
from .ir import Subprogram, lazy_module

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


_NAMESPACES = ("aten", "neuron")
"""Operator namespaces that a stored body may call."""


_EXPORT_AGAIN = "Export the model again with this version."


_NON_FINITE = ("inf", "-inf", "nan")
"""Numbers that JSON does not have, as `repr` spells them."""


def body_from_dict(data: dict[str, Any]) -> fx.GraphModule:
    """Rebuild a body; `meta["val"]` is filled by running it on fake tensors."""
    try:
        return _rebuild(data)
    except ArtifactError:
        raise
    except Exception as error:  # whatever torch raises for shapes and arguments that no compiler wrote
        problem = f"{type(error).__name__}: {str(error).strip()[:300]}"
        message = f"A stored graph cannot be rebuilt ({problem})."
        raise ArtifactError(message, hint=_EXPORT_AGAIN, error=problem) from error


def _rebuild(data: dict[str, Any]) -> fx.GraphModule:
    import torch
    from torch import fx

    graph, values, fakes = fx.Graph(), [], []
    with private.FakeTensorMode():
        for index, spec in enumerate(data["inputs"]):
            node = graph.placeholder(f"arg{index}")
            node.meta["val"] = torch.empty(spec["shape"], dtype=getattr(torch, spec["dtype"]))
            values.append(node)
            fakes.append(node.meta["val"])
        for entry in data["nodes"]:
            target = _op_from_name(entry["op"])
            args = tuple(_decode(value, values) for value in entry["args"])
            kwargs = {key: _decode(value, values) for key, value in entry["kwargs"].items()}
            node = graph.call_function(target, args, kwargs)
            node.meta["val"] = target(
                *fx.map_arg(args, lambda n: n.meta["val"]), **fx.map_arg(kwargs, lambda n: n.meta["val"])
            )
            node.meta["module_path"], node.meta["source_line"] = entry["module_path"], entry["source_line"]
            values.append(node)
    graph.output(tuple(_decode(value, values) for value in data["outputs"]))
    graph.lint()
    return lazy_module(graph)


def _op_from_name(name: str) -> Any:
    import torch

    if name == "getitem":
        return operator.getitem
    namespace, _, rest = str(name).partition(".")
    packet, _, overload = rest.rpartition(".")
    if namespace in _NAMESPACES and packet.isidentifier() and overload.isidentifier():
        if namespace == "neuron":
            from . import collectives, kernels, quantized  # noqa: F401  (they register them)

            if name == kernels.KERNEL:
                return nki.NKI_KERNEL
        target = getattr(getattr(getattr(torch.ops, namespace), packet, None), overload, None)
        if isinstance(target, private.OpOverload):
            return target
    message = f"A stored graph calls {name!r}, but may call registered ATen operators only."
    raise ArtifactError(message, hint=_EXPORT_AGAIN, operator=name)


def _decode(value: object, values: list[fx.Node]) -> Any:
    import torch

    if isinstance(value, list):
        return [_decode(item, values) for item in value]
    if not isinstance(value, dict):
        return value
    kind, content = next(iter(value.items())) if len(value) == 1 else (None, None)
    if kind == "ref" and type(content) is int and 0 <= content < len(values):
        return values[content]
    if kind == "float" and content in _NON_FINITE:
        return float(content)
    if kind == "device" and content == "cpu":
        return torch.device("cpu")
    if kind == "torch":
        constant = getattr(torch, str(content), None)
        if isinstance(constant, (torch.dtype, torch.layout, torch.memory_format)):
            return constant
    raise ArtifactError(f"A stored graph has the invalid argument {value!r}.", hint=_EXPORT_AGAIN, argument=repr(value))


_MAY_COPY = ("aten::to", "aten::contiguous", "aten::reshape", "aten::flatten")
"""Operators whose schema promises a view, but which copy where dtype or layout has to change."""


def mutated_arguments(body: fx.GraphModule) -> tuple[int, ...]:
    """Positions of the placeholders that the body writes in place, directly or through a view."""
    inputs = [node for node in body.graph.nodes if node.op == "placeholder"]
    written = written_tensors(body)
    return tuple(i for i, node in enumerate(inputs) if node in written)


def written_tensors(body: fx.GraphModule) -> set[fx.Node]:
    """Placeholders and results that the body writes in place, directly or through a view."""
    return {
        base_of(argument)
        for node in filter(writes, body.graph.nodes)
        for argument, spec in zip(node.args, node.target._schema.arguments, strict=False)
        if spec.alias_info is not None and spec.alias_info.is_write
    }


def writes(node: fx.Node) -> bool:
    """Return whether a node calls an operator that writes to an argument."""
    schema = schema_of(node)
    return schema is not None and schema.is_mutable


def base_of(node: fx.Node) -> fx.Node:
    """Follow views and in-place results back to the tensor whose memory they are."""
    while node.target is operator.getitem or shares_memory(node):
        node = node.args[0]
    return node


def shares_memory(node: fx.Node) -> bool:
    """Return whether the result of a node lies in the memory of its first argument: a view, or written in place."""
    if node.target is operator.getitem:
        return shares_memory(node.args[0])
    schema = schema_of(node)
    if schema is None or not schema.returns or schema.returns[0].alias_info is None:
        return False
    if schema.name not in _MAY_COPY:
        return True
    value, source = node.meta["val"], node.args[0].meta["val"]
    return value.dtype == source.dtype and (schema.name == "aten::to" or source.is_contiguous())
