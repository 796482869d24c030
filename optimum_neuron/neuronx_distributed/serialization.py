"""Nested objects without their tensors, which are sent separately.

rest, tensors, descriptions = SerializationManager().serialize({"a": torch.ones(2)})
SerializationManager().deserialize(rest, tensors)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch


class TensorMeta(NamedTuple):
    """A place from which a tensor was taken."""

    tensor_index: int
    dtype: torch.dtype
    shape: torch.Size
    requires_grad: bool
    device: torch.device


class SerializationManager:
    """Takes tensors out of tuples, lists, sets, and dicts, and puts them back."""

    def serialize(self, obj: Any, return_stub_list: bool = True) -> tuple[Any, ...]:
        """Return an object with `TensorMeta` in the places of its tensors, the tensors, and all `TensorMeta`.

        Args:
            obj: the object.
            return_stub_list: return the third part too.
        """
        tensors: list[torch.Tensor] = []
        stubs: list[TensorMeta] = []

        def take(tensor: torch.Tensor) -> TensorMeta:
            stub = TensorMeta(len(tensors), tensor.dtype, tensor.shape, tensor.requires_grad, tensor.device)
            tensors.append(tensor)
            stubs.append(stub)
            return stub

        rest = _replaced(obj, torch.Tensor, take)
        return (rest, tensors, stubs) if return_stub_list else (rest, tensors)

    def deserialize(self, stubbed_obj: Any, tensors: Sequence[torch.Tensor]) -> Any:
        """Return an object with its tensors.

        Args:
            stubbed_obj: the object with `TensorMeta` in their places.
            tensors: the tensors.
        """
        return _replaced(stubbed_obj, TensorMeta, lambda stub: tensors[stub.tensor_index])

    def extract_stubs(self, stubbed_obj: Any) -> list[TensorMeta]:
        """Return all `TensorMeta` of an object.

        Args:
            stubbed_obj: the object.
        """
        found: list[TensorMeta] = []
        _replaced(stubbed_obj, TensorMeta, found.append)
        return found


def _replaced(value: Any, kind: type, replace: Callable[[Any], Any]) -> Any:
    """A nested object with other objects in place of those of a kind."""
    if isinstance(value, kind):
        return replace(value)
    if isinstance(value, dict):
        changed = copy.copy(value)  # of the same kind, such as defaultdict
        changed.clear()
        changed.update({_replaced(key, kind, replace): _replaced(one, kind, replace) for key, one in value.items()})
        return changed
    if isinstance(value, (list, tuple, set)) and not isinstance(value, (torch.Size, TensorMeta)):
        parts = [_replaced(one, kind, replace) for one in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
