"""Kernels in graphs of PyTorch: a call becomes one operator with the kernel's stream, wherever tensors are traced.

`torch.ops.neuron.nki_kernel(inputs, key)` returns what the kernel made, then the new values of the inputs that it
writes: the operator itself changes nothing, so graphs may move it. `key` names the stream by its content; `stream_of`
finds it in this process, where it was traced or read from an artifact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..errors import ArtifactError, KernelError
from ..upstream.torch import is_fake, tree_map_only
from .arguments import tensors_in
from .core import default_target

if TYPE_CHECKING:
    from .kernel import Kernel
    from .streams import Stream, Traced

_LIBRARY = torch.library.Library("neuron", "FRAGMENT")
_LIBRARY.define("nki_kernel(Tensor[] inputs, str kernel) -> Tensor[]")

NKI_KERNEL = torch.ops.neuron.nki_kernel.default

_STREAMS: dict[str, Stream] = {}


def add_stream(stream: Stream) -> str:
    """Make a stream known to this process, and return its key, which names its content."""
    key = f"{re.sub(r'[^A-Za-z0-9]', '_', stream.name)}_{stream.digest[:16]}"
    _STREAMS.setdefault(key, stream)
    return key


def stream_of(key: str) -> Stream:
    """Return the stream that an operator calls."""
    if key not in _STREAMS:
        message = f"The graph calls the kernel {key!r}, whose stream is not there."
        raise ArtifactError(message, hint="Compile the model again in this process.", kernel=key)
    return _STREAMS[key]


@torch.library.register_fake("neuron::nki_kernel", lib=_LIBRARY)
def _shapes(inputs: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    from .streams import output_dtype

    stream = stream_of(kernel)
    _check_inputs(stream, inputs)
    made = [inputs[0].new_empty(view.shape, dtype=output_dtype(stream, view)) for view in stream.outputs]
    return [*made, *(inputs[number].new_empty(inputs[number].shape) for number in stream.changed)]


@torch.library.impl(_LIBRARY, "nki_kernel", "CPU")
def replay(inputs: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    """Run a stream on host tensors, which it does not change."""
    from .streams import run

    stream = stream_of(kernel)
    _check_inputs(stream, inputs)
    given = [value.clone() if number in stream.changed else value for number, value in enumerate(inputs)]
    return [*run(stream, given), *(given[number] for number in stream.changed)]


@torch.library.impl(_LIBRARY, "nki_kernel", "PrivateUse1")
def _replay_on_device(inputs: Sequence[torch.Tensor], kernel: str) -> list[torch.Tensor]:
    results = replay(torch.ops.neuron_sim.alias_cpu_list(list(inputs)), kernel)
    return [on_device(value, inputs[0].device.index) for value in results]


def on_device(value: torch.Tensor, device: int) -> torch.Tensor:
    """Return a host tensor as one of the device "neuron", on the same memory."""
    result: torch.Tensor = torch.ops.neuron_sim.alias_neuron(value, device)
    return result


def _check_inputs(stream: Stream, inputs: Sequence[torch.Tensor]) -> None:
    wanted = [tuple(stream.memories[number].shape) for number in stream.inputs]
    if [tuple(value.shape) for value in inputs] != wanted:
        message = f"The kernel {stream.name} was traced for tensors of {wanted}, not of {[*(v.shape for v in inputs)]}."
        raise ArtifactError(message, hint="Compile the model again.", kernel=stream.name)


def is_traced(tensors: Sequence[Any]) -> bool:
    """Return whether a call is part of a graph that is being captured, or asks for shapes only."""
    return any(isinstance(value, torch.Tensor) and (value.is_meta or is_fake(value)) for value in tensors)


def call_in_graph(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a kernel on tensors of a graph that is captured."""
    tensors: list[Any] = tensors_in((args, kwargs))
    for value in tensors:
        # A size that torch knows becomes static here, with a guard; one that depends on values cannot.
        if any(isinstance(size, torch.SymInt) and free_unbacked_symbols(size) for size in value.shape):
            message = f"The kernel {kernel.function.__name__} gets a tensor of the dynamic shape {tuple(value.shape)}."
            hint = "Kernels need static shapes: select with masks of a static shape, or pad to buckets."
            raise KernelError(message, hint=hint, rule="dynamic", shape=[str(size) for size in value.shape])
    from .streams import Input, Output

    traced = _traced(kernel, args, kwargs)
    stream = traced.stream
    values = torch.ops.neuron.nki_kernel(list(tensors), add_stream(stream))
    for number, value in zip(stream.changed, values[len(stream.outputs) :], strict=True):
        tensors[number].copy_(value)
    result = tree_map_only(Input, lambda place: tensors[place.number], traced.result)
    return tree_map_only(Output, lambda place: values[place.number], result)


def call_key(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what the instructions of a call depend on: sizes and dtypes of tensors, and all other arguments."""

    def spec(value: object) -> Any:
        if isinstance(value, torch.Tensor | np.ndarray):
            return "tensor", tuple(int(size) for size in value.shape), str(value.dtype)
        if isinstance(value, Mapping):
            return tuple((key, spec(item)) for key, item in value.items())
        return tuple(map(spec, value)) if isinstance(value, list | tuple) else (type(value), value)

    return kernel, spec(args), spec(kwargs)


def _traced(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
    """Trace a call, once for the same sizes, dtypes and other arguments."""
    from .streams import trace

    target = default_target(kernel.platform)
    key = (target.name, *call_key(kernel, args, kwargs))
    try:
        hash(key)
    except TypeError:
        return trace(kernel, args, kwargs, target=target)
    if key not in _TRACED:
        _TRACED[key] = trace(kernel, args, kwargs, target=target)
    return _TRACED[key]


_TRACED: dict[Any, Traced] = {}
