"""Which operations of a TorchScript graph NeuronCore-v1 runs: the published list, its conditions, and whitelists."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from ...compiler.rules import neuroncore_v1
from ...errors import ConfigError, nearest
from ...hardware import resolve_instance
from .graph import CALL, Operation, Value
from .packed import packed_problem

ALL_COMPILABLE = frozenset((*neuroncore_v1.SUPPORTED, *neuroncore_v1.COMPILABLE))
"""What the compiler takes, also where the CPU is faster: a trace without fallback leaves nothing to the CPU."""


def get_supported_operations() -> list[str]:
    """Return the operators that NeuronCore-v1 runs without a condition, by their names in TorchScript.

    Example:
        ```python
        from optimum_neuron.tracing.inf1 import get_supported_operations

        assert "aten::linear" in get_supported_operations()
        assert "aten::embedding" not in get_supported_operations()
        ```
    """
    return list(neuroncore_v1.SUPPORTED)


def is_available() -> bool:
    """Return whether the simulated instance has NeuronCore-v1."""
    return resolve_instance().value.family == "inf1"


def checked_whitelist(names: Collection[str] | None) -> frozenset[str] | None:
    """Return the operators of a whitelist, all of which the compiler has to take.

    Raises:
        ConfigError: the compiler takes none of that name.
    """
    if names is None:
        return None
    if not isinstance(names, Collection) or isinstance(names, str) or not all(isinstance(one, str) for one in names):
        hint = "Pass a list, such as torch.neuron.get_supported_operations() + ['aten::embedding']."
        message = f"op_whitelist={names!r} is not a list of operators."
        raise ConfigError(message, hint=hint, option="op_whitelist", value=repr(names))
    known = [*neuroncore_v1.SUPPORTED, *neuroncore_v1.LIMITED, *neuroncore_v1.COMPILABLE]
    unknown = sorted(
        name for name in names if name.startswith("aten::") and name not in known and not neuroncore_v1.is_listed(name)
    )
    unknown += sorted(name for name in names if not name.startswith(("aten::", "prim::", "neuron::")))
    if unknown:
        listing = "; ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
        message = f"op_whitelist has operators that neuron-cc does not compile ({listing})."
        hint = "Leave them out; they run on the CPU."
        raise ConfigError(message, hint=hint, option="op_whitelist", unknown=unknown)
    return frozenset(names)


def unsupported_because(operation: Operation, example: Mapping[Value, Any], whitelist: Collection[str] | None) -> str:
    """Say why the core does not run an operation; "" where it does."""
    kind = operation.kind
    if kind == CALL or not kind.startswith("aten::"):
        return "it is not an operator of ATen"
    if whitelist is not None and not _allows(whitelist, kind):
        return "op_whitelist leaves it out"
    if whitelist is None and not neuroncore_v1.is_listed(kind):
        return "NeuronCore-v1 does not have it"
    return _dtype_problem(operation, example) or _condition(operation, example)


def _allows(whitelist: Collection[str], kind: str) -> bool:
    """Return whether a whitelist has an operator; one with all supported operators means those with conditions too."""
    if kind in whitelist or (kind.endswith("_") and kind[:-1] in whitelist):
        return True
    return neuroncore_v1.is_listed(kind) and kind not in neuroncore_v1.SUPPORTED and _ALL.issubset(whitelist)


_ALL = frozenset(neuroncore_v1.SUPPORTED)


def _dtype_problem(operation: Operation, example: Mapping[Value, Any]) -> str:
    tensors = [example.get(value, value.weight) for value in (*operation.inputs, *operation.outputs)]
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and (tensor.is_complex() or tensor.is_sparse or tensor.is_quantized):
            return f"NeuronCore-v1 has no {str(tensor.dtype).removeprefix('torch.')} tensors"
    return ""


def _condition(operation: Operation, example: Mapping[Value, Any]) -> str:
    kind, inputs = operation.kind, operation.inputs
    if kind == "aten::where" and len(inputs) < 3:
        return "where takes a condition and two values"
    if kind == "aten::norm":
        order = inputs[1].literal() if len(inputs) > 1 and inputs[1].is_constant else 2
        order = order.item() if isinstance(order, torch.Tensor) else order
        return "" if order in neuroncore_v1.NORMS else f"norm of order {order}"
    if kind == "aten::one_hot" and (not inputs[1].is_constant or inputs[1].literal() == -1):
        return "one_hot needs num_classes"
    if kind == "aten::max_pool3d_with_indices" and operation.outputs[1].users:
        return "the indices of max_pool3d are used"
    return packed_problem(operation)
