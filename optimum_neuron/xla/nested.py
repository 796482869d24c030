"""Tensors inside nested data: `xm.ToXlaTensorArena` and what is built on it.

>>> arena = ToXlaTensorArena(lambda found: [2 * value for value in found], lambda value: isinstance(value, int))
>>> arena.transform({"a": 1, "b": [2, (3, "x")]})
{'a': 2, 'b': [4, [6, 'x']]}
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from ..errors import ConfigError


class DataWrapper:
    """Base of a user's class that says itself which of its tensors go to a device."""

    def get_tensors(self) -> list[torch.Tensor]:
        """Return tensors on the CPU."""
        raise NotImplementedError

    def from_tensors(self, tensors: list[torch.Tensor]) -> Any:
        """Return the object with tensors in place of those of `get_tensors`."""
        raise NotImplementedError


class ToXlaTensorArena:
    """Replaces selected values in nested data, all of them by one call.

    Dictionaries, lists, sets, and attributes of objects are followed. Results are copies, and tuples become lists, as
    in torch_xla.

    Args:
        convert_fn: takes the list of selected values, and returns the list of their replacements.
        select_fn: returns whether a value is to be replaced.
    """

    def __init__(self, convert_fn: Callable[[list[Any]], list[Any]], select_fn: Callable[[Any], bool]) -> None:
        self._convert, self._select = convert_fn, select_fn
        self._wrapped: dict[int, list[torch.Tensor]] = {}

    def transform(self, inputs: object) -> Any:
        """Return the data with replacements."""
        selected: dict[int, Any] = {}
        self._walk(inputs, {}, lambda value: selected.setdefault(id(value), value))
        values = list(selected.values())
        replacements = dict(zip(selected, self._convert(values) if values else [], strict=True))
        try:
            return self._walk(inputs, {}, lambda value: replacements[id(value)])
        finally:
            self._wrapped.clear()

    def _walk(self, value: object, seen: dict[int, Any], leaf: Callable[[Any], Any]) -> Any:
        """A copy of the data with the results of a function in place of selected values; shared data stays shared."""
        if id(value) in seen:
            return seen[id(value)]
        if self._select(value):
            seen[id(value)] = leaf(value)
        elif isinstance(value, dict):
            pairs = seen[id(value)] = {}
            for key, item in value.items():
                pairs[self._walk(key, seen, leaf)] = self._walk(item, seen, leaf)
        elif isinstance(value, set):
            seen[id(value)] = {self._walk(item, seen, leaf) for item in value}
        elif isinstance(value, (list, tuple)):
            items = seen[id(value)] = []
            items += [self._walk(item, seen, leaf) for item in value]
        elif isinstance(value, DataWrapper):
            tensors = self._wrapped.setdefault(id(value), value.get_tensors())
            seen[id(value)] = value.from_tensors([self._walk(item, seen, leaf) for item in tensors])
        elif hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module)) and not callable(value):
            copied = seen[id(value)] = copy.copy(value)
            for name, item in vars(value).items():
                vars(copied)[name] = self._walk(item, seen, leaf)
        else:
            seen[id(value)] = value
        return seen[id(value)]


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is on a device "xla"."""
    return tensor.device.type == "xla"


def to_cpu(data: object, convert: bool = True) -> Any:
    """Return nested data with its tensors of "xla" on the CPU: `xm._maybe_convert_to_cpu`.

    Args:
        data: nested data.
        convert: False leaves tensors where they are.
    """
    move = (lambda tensors: [tensor.cpu() for tensor in tensors]) if convert else (lambda tensors: tensors)
    return ToXlaTensorArena(move, lambda value: type(value) is torch.Tensor and is_xla_tensor(value)).transform(data)


def send_cpu_data_to_device(datas: object, device: str | torch.device, input_sharding: object = None) -> Any:
    """Return nested data with its CPU tensors on a device.

    Args:
        datas: nested data.
        device: device for all of its tensors.
        input_sharding: None; tensors are not divided.

    Raises:
        ConfigError: a sharding is given.
    """
    if input_sharding is not None:
        hint = "Start one process for each core with torchrun; a `DistributedSampler` divides the data."
        raise ConfigError("`input_sharding` is not supported: a tensor is on one device.", hint=hint)
    return ToXlaTensorArena(
        lambda tensors: [tensor.to(device) for tensor in tensors],
        lambda value: type(value) is torch.Tensor and value.device.type == "cpu",
    ).transform(datas)


def check_view_sharing(obj: object) -> None:
    """Check that no two tensors of nested data share memory.

    Raises:
        RuntimeError: two do; `torch.save` of one would save both.
    """
    owners: dict[int, torch.Tensor] = {}

    def check(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        for tensor in tensors:
            owner = owners.setdefault(tensor.untyped_storage().data_ptr(), tensor)
            if owner is not tensor:
                shapes = f"{tensor.dtype}{list(tensor.shape)} and {owner.dtype}{list(owner.shape)}"
                raise RuntimeError(f"Two tensors share memory: {shapes}. Clone one of them.")
        return tensors

    ToXlaTensorArena(check, lambda value: type(value) is torch.Tensor).transform(obj)


def for_each_instance(value: object, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> None:
    """Call a function with each selected value of nested data.

    Args:
        value: nested data.
        select_fn: returns whether a value is selected.
        fn: the function.
    """

    def call(found: list[Any]) -> list[Any]:
        for one in found:
            fn(one)
        return found

    ToXlaTensorArena(call, select_fn).transform(value)


def for_each_instance_rewrite(value: object, select_fn: Callable[[Any], bool], fn: Callable[[Any], Any]) -> Any:
    """Return nested data with a function's results in place of selected values.

    Args:
        value: nested data.
        select_fn: returns whether a value is selected.
        fn: the function.
    """
    return ToXlaTensorArena(lambda found: [fn(one) for one in found], select_fn).transform(value)
