"""States of a traced module: parameters and buffers that stay on the device and take the value of an output.

It does not depend on graphs; `entry.py` puts the states into a call.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..compiler import tensor_spec
from ..errors import ConfigError
from .structure import Flat, without

Aliases = Mapping[torch.Tensor, int | None]
"""State tensors of the module, each with the number of the output that replaces it; None: the module replaces it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """A parameter or buffer that lives on the device and takes the value of an output after each call."""

    name: str
    """Name in the user's module."""
    store: dict[str, Any]
    """The owner's table of parameters or buffers."""
    key: str
    """Name in that table."""
    value: torch.Tensor
    """The value to begin with."""
    output: int | None
    """Number of the output; None: what the module has under this name after a call."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharedStates:
    """Device-resident buffers that several entries use, each a part of them."""

    buffers: tuple[torch.Tensor, ...]
    """First values, in the largest shapes."""
    slicer: torch.jit.ScriptFunction | None
    """Returns an entry's part of the buffers; None where every entry uses them whole."""
    shapes: list[list[list[int]]]
    """Shapes of the states, for each entry."""
    bucket: int
    """Number of this entry."""

    def parts(self, buffers: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """This entry's part."""
        if self.slicer is None:
            return buffers
        parts = self.slicer(self.shapes, list(buffers), torch.tensor([self.bucket]))
        owned = {id(buffer) if buffer._base is None else id(buffer._base) for buffer in buffers}
        copies = [n for n, p in enumerate(parts) if id(p if p._base is None else p._base) not in owned]
        if copies:
            message = f"For bucket {self.bucket}, the slicer copies the shared states {', '.join(map(str, copies))}."
            raise ConfigError(message, hint="Slice with torch.ops.aten.slice.", bucket=self.bucket, states=copies)
        return parts


@contextlib.contextmanager
def replaced(states: Sequence[State], tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Let the module see other tensors in place of its states."""
    saved = [state.store[state.key] for state in states]
    for state, tensor in zip(states, tensors, strict=True):
        state.store[state.key] = tensor
    try:
        yield
    finally:
        for state, value in zip(states, saved, strict=True):
            state.store[state.key] = value


def find_states(function: Callable[..., Any], aliases: Aliases) -> tuple[State, ...]:
    """The states of a module, in the order of the aliases."""
    states: dict[int, State] = {}
    by_id = {id(tensor): (tensor, index) for tensor, index in aliases.items()}
    for path, module in function.named_modules() if isinstance(function, nn.Module) else ():
        for store in (module._parameters, module._buffers):
            for key, value in store.items():
                if value is not None and id(value) in by_id:
                    name = f"{path}.{key}".removeprefix(".")
                    output = by_id[id(value)][1]
                    states[id(value)] = State(name=name, store=store, key=key, value=value.detach(), output=output)
    unknown = [str(tensor_spec(tensor)) for key, (tensor, _) in by_id.items() if key not in states]
    if unknown:
        message = f"input_output_aliases has tensors that are not parameters or buffers: {', '.join(unknown)}."
        hint = "Register each with register_buffer, and pass {module.buffer: number of the output}."
        raise ConfigError(message, hint=hint, option="input_output_aliases", tensors=unknown)
    return tuple(states[key] for key in by_id)


def kept_by(state: State, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that the module has in place of a state after a call."""
    value: torch.Tensor = state.store[state.key]
    expected, actual = str(tensor_spec(tensor)), str(tensor_spec(value))
    if actual != expected:
        message = f"The module replaces {state.name}, which is {expected}, by a tensor that is {actual}."
        hint = "Let the new value have the shape and dtype of the old one."
        raise ConfigError(message, hint=hint, state=state.name, expected=expected, actual=actual)
    return value


def output_of(state: State, outputs: Flat, tensor: torch.Tensor) -> torch.Tensor:
    """The output that is the next value of a state."""
    assert state.output is not None, "its value is an output"
    count = len(outputs.tensors)
    expected, actual = str(tensor_spec(tensor)), None
    if not 0 <= state.output < count or not isinstance(outputs.skeleton, (tuple, list)):
        problem = f"the function returns {count} tensor{'s' if count != 1 else ''}"
    elif not any(part == state.output for part in outputs.skeleton if isinstance(part, int)):
        problem = "that output is inside a nested structure"
    elif (actual := str(tensor_spec(outputs.tensors[state.output]))) != expected:
        problem = f"that output is {actual}, the state {expected}"
    else:
        return outputs.tensors[state.output]
    message = f"Output {state.output} cannot be the new value of {state.name}: {problem}."
    hint = "Return the new value, of the state's shape and dtype, as an element of a tuple, and pass its number."
    details = {"state": state.name, "output": state.output, "num_outputs": count}
    raise ConfigError(message, hint=hint, expected=expected, actual=actual, **details)


def without_states(outputs: Flat, dropped: set[int]) -> Flat:
    """Return the outputs that are not states."""
    if not dropped:
        return outputs
    left = [index for index in range(len(outputs.tensors)) if index not in dropped]
    if not left:
        message = "input_output_aliases names every output, so nothing is left to return."
        raise ConfigError(message, hint="Return one tensor more.", option="input_output_aliases")
    return Flat(
        skeleton=without(outputs.skeleton, dropped),
        tensors=tuple(outputs.tensors[index] for index in left),
        names=tuple(outputs.names[index] for index in left),
    )
