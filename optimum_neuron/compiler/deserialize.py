"""FX bodies from the JSON that `serialize.py` writes, without executing anything that a file says.

torch's own `.pt2` reader falls back to full unpickling for sample inputs (torch 2.13,
`torch/_export/serde/serialize.py: deserialize_torch_artifact`), so a stored program would be able to run code.
Here only registered operators of two namespaces are called, with plain arguments; anything else is an error.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from .. import nki
from ..errors import ArtifactError
from .ir import lazy_module

if TYPE_CHECKING:
    from torch import fx

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

    from ..upstream.torch import FakeTensorMode

    graph, values, fakes = fx.Graph(), [], []
    with FakeTensorMode():
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

    from ..upstream.torch import OpOverload

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
        if isinstance(target, OpOverload):
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
