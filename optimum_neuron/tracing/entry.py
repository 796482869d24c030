"""One entry point to trace: a function or module with example inputs, as a module of flat tensors that can be captured.

Its parameters keep the names they have in the user's module, behind `ROOT`, the name that torch itself gives to the
root of a graph; module paths in messages leave that name out. It does not depend on targets, files or cores.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..compiler import Captured, capture, fake_parameters, tensor_spec
from ..core import TensorSpec
from ..errors import CaptureError, ConfigError
from .states import Aliases, SharedStates, find_states, output_of, replaced, without_states
from .structure import Skeleton, flatten, rebuild

ROOT = "L__self__"
"""Attribute of the traced module; `rules/location.py` knows it as the root."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outputs:
    """Result of a call, without the states."""

    skeleton: Skeleton
    """Its nesting."""
    specs: tuple[TensorSpec, ...]
    """Shapes and dtypes; a size that depends on values is -1."""


class _Last:
    """Holds attributes that export would undo: assignments to attributes of a module, also in its lists."""

    outputs: Outputs | None = None


class Entry(nn.Module):
    """Takes flat tensors, and a list of states if there are any; returns a flat list.

    `shared` are buffers that hold the states; None gives each state its own.

    Raises:
        ConfigError: an input is no tensor, or a state is not one of the module's.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        example_inputs: Sequence[Any],
        aliases: Aliases,
        shared: SharedStates | None = None,
    ) -> None:
        super().__init__()
        if isinstance(function, nn.Module):
            self.add_module(ROOT, function)
        self._function = [function]  # in a list, or it would be a second submodule
        self.states = find_states(function, aliases)
        self._shared = shared
        self.inputs = flatten(tuple(example_inputs), "example_inputs")
        self._last = _Last()

    @property
    def outputs(self) -> Outputs:
        """Result of the last call."""
        assert self._last.outputs is not None, "forward was called"
        return self._last.outputs

    @property
    def function(self) -> Callable[..., Any]:
        """Module or function that is traced."""
        return self._function[0]

    @property
    def input_specs(self) -> dict[str, TensorSpec]:
        """Shapes and dtypes of the flat inputs under the names of the function's parameters."""
        names = [_input_name(name, self.parameter_names) for name in self.inputs.names]
        return dict(zip(names, map(tensor_spec, self.inputs.tensors), strict=True))

    @functools.cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the function's positional parameters, one for each example input."""
        call = self.function.forward if isinstance(self.function, nn.Module) else self.function
        try:
            parameters = inspect.signature(call).parameters.values()
        except ValueError:  # some functions of torch tell none
            parameters = ()  # type: ignore[assignment]
        names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        count = len(self.inputs.skeleton)
        return tuple([*names, *(f"input{index}" for index in range(len(names), count))][:count])

    @property
    def state_values(self) -> dict[str, torch.Tensor]:
        """Initial values of device-resident state."""
        if self._shared is None:
            return {state.name: state.value for state in self.states}
        return {f"shared_state_{index}": tensor for index, tensor in enumerate(self._shared.buffers)}

    @property
    def state_specs(self) -> dict[str, TensorSpec]:
        """Shapes and dtypes of the states; they belong to no layer of a stack, hence the 0 that `capture` reads."""
        return {f"{name}.0": tensor_spec(value) for name, value in self.state_values.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters, buffers and first values of states by their names in the user's module."""
        named = {name.removeprefix(f"{ROOT}."): value for name, value in self.state_dict(keep_vars=True).items()}
        return {**named, **self.state_values}

    def forward(self, *arguments: Any) -> list[torch.Tensor]:
        """Call the function; aliased outputs go to the states."""
        *flat, states = arguments if self.states else (*arguments, [])
        states = states if self._shared is None else self._shared.parts(states)
        with replaced(self.states, states):
            result = self.function(*rebuild(self.inputs.skeleton, flat))
        outputs = flatten(result, "output")
        for state, tensor in zip(self.states, states, strict=True):
            tensor.copy_(output_of(state, outputs, tensor))
        result = without_states(outputs, {state.output for state in self.states})
        self._last.outputs = Outputs(skeleton=result.skeleton, specs=tuple(map(_spec, result.tensors)))
        return list(result.tensors)

    def capture(self, name: str, shorten: bool) -> Captured:
        """Trace as a graph of the given name, see `compiler.capture`.

        Raises:
            CaptureError: the function is not static, or returns another number of tensors when it has fewer layers.
        """
        captured = capture(
            self,
            name=name,
            inputs=self.input_specs,
            states=self.state_specs,
            outputs=(),
            shorten=shorten and not self.states,
        )
        outputs = self.outputs
        if any(stack.captured.value < stack.num_layers for stack in captured.stacks) and outputs != self._measured():
            raise CaptureError("its outputs depend on the number of layers")
        return dataclasses.replace(captured, outputs=tuple(f"output_{index}" for index in range(len(outputs.specs))))

    def _measured(self) -> Outputs:
        """The outputs with all layers, without computing them."""
        from ..upstream.torch import FakeTensorMode

        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with fake_parameters(self, mode), torch.no_grad(), mode:
            inputs = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in self.input_specs.values()]
            self(*inputs)
        return self.outputs


def make_entry(function: Any, example_inputs: Any, aliases: Aliases, shared: SharedStates | None = None) -> Entry:
    """Return an entry whose class has the name of the function, for messages.

    Raises:
        ConfigError: see `Entry`; a single tensor counts as one input.
    """
    if not callable(function):
        message = f"A {type(function).__name__} cannot be traced, because it cannot be called."
        raise ConfigError(message, hint="Pass a torch.nn.Module or a function.")
    inputs = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    kind = type(function).__name__ if isinstance(function, nn.Module) else getattr(function, "__name__", "function")
    return type(kind, (Entry,), {})(function, inputs, aliases, shared)


def warn_ignored(taken: str, arguments: Sequence[Any]) -> None:
    """Warn the caller's caller of more arguments by position, which the vendor's functions ignore too."""
    if arguments:
        message = f"{taken} by position; {len(arguments)} more arguments are ignored, pass them by name"
        warnings.warn(message, stacklevel=3)


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(size if isinstance(size, int) else -1 for size in tensor.shape)
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))


def _input_name(name: str, parameters: Sequence[str]) -> str:
    """ "example_inputs.0.mask" as "x.mask"."""
    _, index, *rest = name.split(".")
    return ".".join([parameters[int(index)], *rest])
