"""One entry point to trace: a function or module with example inputs, as a module of flat tensors that can be captured.

Its parameters keep the names they have in the user's module, behind `ROOT`, the name that torch itself gives to the
root of a graph; module paths in messages leave that name out. It does not depend on targets, files or cores.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..base.core import TensorSpec
from ..compiler import Captured, capture, fake_parameters, tensor_spec
from ..errors import CaptureError, ConfigError, nearest
from .states import Aliases, SharedStates, find_states, kept_by, output_of, replaced, without_states
from .structure import Skeleton, flatten, rebuild

ROOT = "L__self__"
"""Attribute of the traced module; `rules/call.py` knows it as the root."""


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

    A mapping of example inputs is passed by keyword. `shared` are buffers that hold the states; None gives each state
    its own.

    Raises:
        ConfigError: an input is no tensor, a keyword is not one of the function's, or a state is not one of the
            module's.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        example_inputs: Sequence[Any] | Mapping[str, Any],
        aliases: Aliases,
        shared: SharedStates | None = None,
    ) -> None:
        super().__init__()
        if isinstance(function, nn.Module):
            self.add_module(ROOT, function)
        self._function = [function]  # in a list, or it would be a second submodule
        self.states = find_states(function, aliases)
        self._shared = shared
        self.keywords: tuple[str, ...] | None = None
        if isinstance(example_inputs, Mapping):
            self.keywords = _ordered(function, example_inputs)
            by_keyword = flatten({name: example_inputs[name] for name in self.keywords}, "example_kwarg_inputs")
            self.inputs = dataclasses.replace(by_keyword, skeleton=tuple(by_keyword.skeleton.values()))
        else:
            self.inputs = flatten(tuple(example_inputs), "example_inputs")
        _require_accepted(function, self.inputs.skeleton, self.keywords)
        self._last = _Last()
        self._captured: Captured | None = None

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
        parameters = {str(index): name for index, name in enumerate(self.parameter_names)}
        names = [_input_name(name, {} if self.keywords is not None else parameters) for name in self.inputs.names]
        return dict(zip(names, map(tensor_spec, self.inputs.tensors), strict=True))

    @functools.cached_property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the function's parameters, one for each example input."""
        if self.keywords is not None:
            return self.keywords
        names = [p.name for p in _parameters(self.function) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
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
            values = rebuild(self.inputs.skeleton, flat)
            if self.keywords is None:
                result = self.function(*values)
            else:
                result = self.function(**dict(zip(self.keywords, values, strict=True)))
            kept = {
                state.name: kept_by(state, tensor)
                for state, tensor in zip(self.states, states, strict=True)
                if state.output is None
            }
        outputs = flatten(result, "output")
        for state, tensor in zip(self.states, states, strict=True):
            value = kept[state.name] if state.output is None else output_of(state, outputs, tensor)
            if value is not tensor:
                tensor.copy_(value)
        result = without_states(outputs, {state.output for state in self.states if state.output is not None})
        self._last.outputs = Outputs(skeleton=result.skeleton, specs=tuple(map(_spec, result.tensors)))
        return list(result.tensors)

    def capture(self, name: str, shorten: bool, *, cuts: Sequence[str] = ()) -> Captured:
        """Trace as a graph of the given name, see `compiler.capture`; `cuts` are modules of the user's module.

        Raises:
            CaptureError: the function is not static, or returns another number of tensors when it has fewer layers.
        """
        if self._captured is not None:
            return dataclasses.replace(self._captured, name=name)
        captured = capture(
            self,
            name=name,
            inputs=self.input_specs,
            states=self.state_specs,
            outputs=(),
            cuts=tuple(f"{ROOT}.{path}" for path in cuts),
            shorten=shorten and not self.states,
            refuse_numbers=True,
        )
        outputs = self.outputs
        if any(stack.captured.value < stack.num_layers for stack in captured.stacks) and outputs != self._measured():
            raise CaptureError("its outputs depend on the number of layers")
        return dataclasses.replace(captured, outputs=tuple(f"output_{index}" for index in range(len(outputs.specs))))

    def capture_now(self) -> None:
        """Trace with all layers; `capture` then returns that graph, whatever becomes of the function."""
        self._captured = self.capture("graph", shorten=False)

    def _measured(self) -> Outputs:
        """The outputs with all layers, without computing them."""
        from ..upstream.torch import FakeTensorMode

        mode = FakeTensorMode(allow_non_fake_inputs=True)
        with fake_parameters(self, mode), torch.no_grad(), mode:
            inputs = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in self.input_specs.values()]
            self(*inputs)
        return self.outputs


def require_callable(function: object) -> None:
    """Check that something to trace is a module or a function."""
    if not callable(function):
        kind = type(function).__name__
        message = f"A {kind} cannot be traced, because it cannot be called."
        raise ConfigError(message, hint="Pass a torch.nn.Module or a function.", option="func", type=kind)


def make_entry(
    function: object,
    example_inputs: object,
    aliases: Aliases,
    shared: SharedStates | None = None,
    *,
    keywords: Mapping[str, Any] | None = None,
) -> Entry:
    """Return an entry whose class has the name of the function, for messages.

    Inputs are passed by position, and a single tensor counts as one, or by keyword.
    """
    require_callable(function)
    if keywords is not None:
        _require_keywords(example_inputs, keywords)
    elif example_inputs is None:
        hint = "Pass example_inputs, or example_kwarg_inputs."
        raise ConfigError("There are no example inputs.", hint=hint, option="example_inputs")
    inputs: Any = example_inputs if isinstance(example_inputs, tuple) else (example_inputs,)
    inputs = inputs if keywords is None else keywords
    kind = type(function).__name__ if isinstance(function, nn.Module) else getattr(function, "__name__", "function")
    return type(kind, (Entry,), {})(function, inputs, aliases, shared)


def _require_keywords(example_inputs: object, keywords: object) -> None:
    option = "example_kwarg_inputs"
    if not isinstance(keywords, Mapping) or not all(isinstance(name, str) for name in keywords):
        kind = type(keywords).__name__
        message = f"{option} is a {kind}, not a dictionary of tensors by parameter name."
        raise ConfigError(message, hint='Pass a dictionary such as {"input_ids": input_ids}.', option=option, type=kind)
    if example_inputs is not None:
        message = f"example_inputs and {option} are both given."
        options = ["example_inputs", option]
        raise ConfigError(message, hint="Pass all inputs by position, or all by keyword.", options=options)


def warn_ignored(taken: str, arguments: Sequence[Any], *, stacklevel: int = 3) -> None:
    """Warn the caller's caller of more arguments by position, which the vendor's functions ignore too."""
    if arguments:
        message = f"{taken} by position; {len(arguments)} more arguments are ignored, pass them by name"
        warnings.warn(message, stacklevel=stacklevel)


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(size if isinstance(size, int) else -1 for size in tensor.shape)
    return TensorSpec(shape=shape, dtype=str(tensor.dtype).removeprefix("torch."))


def _input_name(name: str, parameters: Mapping[str, str]) -> str:
    """ "example_inputs.0.mask" as "x.mask"; an input passed by keyword has its name."""
    _, first, *rest = name.split(".")
    return ".".join([parameters.get(first, first), *rest])


def _parameters(function: Callable[..., Any]) -> Sequence[inspect.Parameter]:
    call = function.forward if isinstance(function, nn.Module) else function
    try:
        return tuple(inspect.signature(call).parameters.values())
    except ValueError:  # some functions of torch tell none
        return ()


def _require_accepted(function: Callable[..., Any], inputs: Sequence[Any], keywords: Sequence[str] | None) -> None:
    """Require that the function can be called with these inputs."""
    signature = inspect.Signature(_parameters(function))
    if not signature.parameters:
        return
    try:
        signature.bind(*(inputs if keywords is None else ()), **dict.fromkeys(keywords or ()))
    except TypeError as error:
        option = "example_inputs" if keywords is None else "example_kwarg_inputs"
        message = f"The function cannot be called with the {option}: {error}."
        names = ", ".join(str(parameter) for parameter in signature.parameters.values())
        raise ConfigError(message, hint=f"Its parameters are {names}.", option=option, error=str(error)) from error


def _ordered(function: Callable[..., Any], inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Keywords in the order of the function's parameters."""
    parameters = _parameters(function)
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [name for name in inputs if name not in known]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        listing = ", ".join(f"{name!r}{nearest(name, known)}" for name in unknown)
        message = f"example_kwarg_inputs has keywords that the function does not take: {listing}."
        hint = f"Its parameters are {', '.join(known) or 'none'}."
        raise ConfigError(message, hint=hint, option="example_kwarg_inputs", unknown=unknown, choices=known)
    return (*(name for name in known if name in inputs), *unknown)
