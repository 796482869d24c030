"""A kernel and its arguments become a stream: the kernel's Python runs on tensors without memory.

Shapes, dtypes, and all other arguments are constants of the stream. Python that asks for a value of a tensor is an
error, because the stream would hold for that value only.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...hardware import Target
from ...upstream.torch import disable_current_modes
from ..arguments import tensors_in
from ..core import Core, Grid, Rule, default_target, first_line, refuse, require, use
from ..dtypes import FORMATS, dtype_name
from ..kernel import Kernel
from ..memory import Buffer, Storage
from ..tensor import NkiTensor
from .document import Input, Output, Stream, View
from .tape import Tape, Tensors


@dataclasses.dataclass(frozen=True)
class Traced:
    """A stream, and how the kernel's call is made of it."""

    stream: Stream
    result: Any
    """What the kernel returned: `Input` and `Output` in tuples and dictionaries, or other values."""


def trace(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, target: Target | None = None) -> Traced:
    """Trace a kernel with the sizes and dtypes of its arguments.

    Args:
        kernel: the kernel, with its grid.
        args: its arguments; only sizes and dtypes of arrays are used.
        kwargs: its arguments by name.
        target: target that the kernel's Python sees; None for NEURON_PLATFORM_TARGET_OVERRIDE or trn3.
    """
    target = default_target(kernel.platform) if target is None else target
    rules, grid, tensors = kernel.keeps_rules(), Grid(shape=kernel.grid), Tensors()
    inputs: list[int] = []
    results = []
    tapes = []
    with disable_current_modes(), torch.no_grad():
        placed = _placed((args, dict(kwargs)), tensors, inputs)
        for rank in itertools.product(*map(range, kernel.grid)):
            tapes.append(Tape(tensors))
            core = Core(target=target, grid=grid, rank=rank, tape=tapes[-1], number=len(tapes) - 1)
            core.ignores_addresses, core.platform_rules = kernel.ignores_addresses, rules
            with use(core):
                results.append(_run(kernel, *placed))
    written = set().union(*(tape.written for tape in tapes))
    changed = tuple(place for place, number in enumerate(inputs) if number in written)
    outputs: list[View] = []
    result = _result(results[-1], tapes[-1], inputs, outputs)
    name = kernel.function.__name__
    is_useful = result is not None or changed
    require(is_useful, Rule.NO_RESULT, line=first_line(kernel.function), kernel=name)
    kept = {*inputs, *(view.tensor for view in outputs), *_shared(tensors, kernel.grid)}
    stream = Stream(
        name=name,
        target=target.name,
        grid=kernel.grid,
        memories=tuple(tensors.memories),
        inputs=tuple(inputs),
        changed=changed,
        outputs=tuple(outputs),
        programs=tuple(tape.nodes(kept) for tape in tapes),
        constants=tensors.constants,
    )
    return Traced(stream, result)


def _shared(tensors: Tensors, grid: tuple[int, ...]) -> list[int]:
    """Return the tensors that cores of a grid share, which exist from the begin on."""
    place = Buffer.shared_hbm.value
    return [number for number, memory in enumerate(tensors.memories) if grid and memory.buffer == place]


def _placed(value: object, tensors: Tensors, inputs: list[int]) -> Any:
    """Return arguments with tensors in HBM that have no memory in place of arrays."""
    if isinstance(value, torch.Tensor | np.ndarray):
        shape = tuple(int(size) for size in value.shape)
        name = f"argument_{len(inputs)}"
        kind = dtype_name(value.dtype)
        storage = Storage.empty(shape, kind, Buffer.hbm, name=name, line="", precise=True, is_traced=True)
        inputs.append(tensors.add(storage))
        return NkiTensor(storage)
    if isinstance(value, dict):
        return {key: _placed(item, tensors, inputs) for key, item in value.items()}
    if isinstance(value, list | tuple) and tensors_in(value):
        return type(value)(_placed(item, tensors, inputs) for item in value)
    return value


def _run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the kernel's Python, and name the line that asks for values."""
    try:
        return kernel.function(*args, **kwargs)
    except (NotImplementedError, RuntimeError, TypeError) as error:
        if "meta" not in str(error).lower():
            raise
        refuse(Rule.VALUES_IN_STREAM, kernel=kernel, reason=str(error).splitlines()[0][:200])


def _result(value: object, tape: Tape, inputs: list[int], outputs: list[View]) -> Any:
    """Return what a kernel returned, with tensors by number."""
    if isinstance(value, list | tuple):
        return tuple(_result(item, tape, inputs, outputs) for item in value)
    if isinstance(value, dict):
        return {key: _result(item, tape, inputs, outputs) for key, item in value.items()}
    if not isinstance(value, NkiTensor):
        return value
    require(not value.buffer.is_on_chip, Rule.RESULT_ON_CHIP, of=value, line=value.storage.line)
    number = tape.tensors.number(value.storage)
    if number in inputs and value.shape == tape.tensors.memories[number].shape:
        return Input(inputs.index(number))
    view = tape.view(value)
    if view not in outputs:
        outputs.append(view)
    return Output(outputs.index(view))


def output_dtype(stream: Stream, view: View) -> torch.dtype:
    """Return torch's dtype of a result."""
    return FORMATS[view.dtype or stream.memories[view.tensor].dtype].storage
