"""States of a traced module: parameters and buffers that stay on the device and take the value of an output.

It knows nothing of graphs; `entry.py` puts the states into a call.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..compiler.serial import tensor_spec
from ..errors import ConfigError, refusal
from .structure import Flat, without

Aliases = Mapping[torch.Tensor, int]
"""State tensors of the module, each with the number of the output that replaces it."""


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
    output: int
    """Number of the output."""


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
        """This entry's part.

        Raises:
            ConfigError: the slicer copies, so that new values would not reach the buffers.
        """
        if self.slicer is None:
            return buffers
        parts = self.slicer(self.shapes, list(buffers), torch.tensor([self.bucket]))
        owned = {id(buffer) if buffer._base is None else id(buffer._base) for buffer in buffers}
        copies = [n for n, p in enumerate(parts) if id(p if p._base is None else p._base) not in owned]
        if copies:
            raise ConfigError(
                refusal(
                    asked=f"parts of {len(buffers)} shared states for bucket {self.bucket}",
                    found=f"not views of them: {', '.join(map(str, copies))}",
                    why="a bucket writes its new values into the shared states",
                    do="slice with torch.ops.aten.slice, and copy nothing",
                )
            )
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
    """The states of a module, in the order of the aliases.

    Raises:
        ConfigError: a tensor is not one of the module's.
    """
    found: dict[int, State] = {}
    wanted = {id(tensor): (tensor, index) for tensor, index in aliases.items()}
    for path, module in function.named_modules() if isinstance(function, nn.Module) else ():
        for store in (module._parameters, module._buffers):
            for key, value in store.items():
                if value is not None and id(value) in wanted:
                    name = f"{path}.{key}".removeprefix(".")
                    output = wanted[id(value)][1]
                    found[id(value)] = State(name=name, store=store, key=key, value=value.detach(), output=output)
    unknown = [str(tensor_spec(tensor)) for key, (tensor, _) in wanted.items() if key not in found]
    if unknown:
        raise ConfigError(
            refusal(
                asked=f"input_output_aliases of {len(wanted)} tensors",
                found=f"not parameters or buffers of the module: {', '.join(unknown)}",
                why="a state stays on the device between calls, so the module has to own it",
                do="register it with register_buffer, and pass {module.buffer: number of the output}",
            )
        )
    return tuple(found[key] for key in wanted)


def output_of(state: State, outputs: Flat, tensor: torch.Tensor) -> torch.Tensor:
    """The output that is the next value of a state.

    Raises:
        ConfigError: there is none, or it has another shape or dtype.
    """
    count = len(outputs.tensors)
    if not 0 <= state.output < count or not isinstance(outputs.skeleton, (tuple, list)):
        found = f"the function returns {count} tensor{'s' if count != 1 else ''}"
    elif not any(part == state.output for part in outputs.skeleton if isinstance(part, int)):
        found = "that output is inside a nested structure"
    elif tensor_spec(outputs.tensors[state.output]) != tensor_spec(tensor):
        found = f"that output is {tensor_spec(outputs.tensors[state.output])}, the state {tensor_spec(tensor)}"
    else:
        return outputs.tensors[state.output]
    raise ConfigError(
        refusal(
            asked=f"output {state.output} as the new value of {state.name}",
            found=found,
            why="an alias needs an output of its own, of the state's shape and dtype, in the tuple that is returned",
            do="return the new value as an element of a tuple, and pass its number",
        )
    )


def without_states(outputs: Flat, dropped: set[int]) -> Flat:
    """What is returned of the outputs.

    Raises:
        ConfigError: nothing.
    """
    if not dropped:
        return outputs
    kept = [index for index in range(len(outputs.tensors)) if index not in dropped]
    if not kept:
        raise ConfigError(
            refusal(
                asked="input_output_aliases for every output",
                found="nothing is left to return",
                why="aliased outputs stay on the device",
                do="return one tensor more",
            )
        )
    return Flat(
        skeleton=without(outputs.skeleton, dropped),
        tensors=tuple(outputs.tensors[index] for index in kept),
        names=tuple(outputs.names[index] for index in kept),
    )
