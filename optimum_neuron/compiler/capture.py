"""Capture: a module and example inputs become a static `torch.export` program, without weights.

Parameters are replaced by fakes of the same shape while the model is traced, so a 70B model needs no memory. Buffers
that are computed at construction (rotary frequencies) keep their values: they are part of the graph. It does not depend
on targets, passes or the models' meaning.

Fake tensors do not raise the error that torch's kernels raise for mixed dtypes, such as a bfloat16 norm of a float32
input, so a graph is read after its capture. The dtypes that a target supports are defined by the rules.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import logging
import operator
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram

from ..base.core import TensorSpec
from ..errors import CaptureError, NeuronError
from ..upstream.torch import FakeTensorMode, use_lazy_graph_module
from .casts import write_casts
from .frames import Lines, source_lines
from .ir import Role
from .kernels import write_out
from .record import Segment, record
from .rules import OpCall, base_name, op_name, region_of
from .serialize import writes
from .stacks import Stack, find_stacks, repeating, shortened

_NOISY_LOGGERS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Captured:
    """A traced entry point before any pass; fields without a docstring are arguments of `capture`."""

    name: str
    exported: ExportedProgram
    """torch's program in training IR: ATen, not decomposed, in-place operators kept."""
    inputs: tuple[str, ...]
    """Names of the tensor inputs, in the graph's order."""
    states: tuple[str, ...]
    """Names of the state tensors, in the graph's order, for the captured layers."""
    outputs: tuple[str, ...]
    stacks: tuple[Stack, ...]
    """Stacks found in the module; some were shortened."""
    tied: dict[str, str]
    """Names of tied parameters, each with the first name of the same tensor."""
    cuts: tuple[str, ...] = ()
    layer_results: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rare: bool = False
    role: Role = "forward"
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)


def capture(
    module: nn.Module,
    *,
    name: str,
    role: Role = "forward",
    sizes: Mapping[str, int] | None = None,
    inputs: Mapping[str, TensorSpec],
    states: Mapping[str, TensorSpec] | None = None,
    outputs: tuple[str, ...] = ("output",),
    cuts: tuple[str, ...] = (),
    layer_results: Mapping[str, str] | None = None,
    rare: bool = False,
    shorten: bool = True,
    kinds: Mapping[str, Sequence[int]] = MappingProxyType({}),
    refuse_numbers: bool = False,
) -> Captured:
    """Trace `module(*inputs, states)` with static shapes.

    Args:
        module: called as `module(*inputs)`, or `module(*inputs, states)` with a list of state tensors.
            States are named "<what>.<layer>"; when a stack is shortened only the states of the captured layers
            are passed.
        role: Role of the entry point, see `ir.Role`.
        sizes: size of each axis that has buckets.
        inputs: shapes and dtypes of the positional inputs.
        states: device-resident tensors that the module writes in place.
        outputs: names for the tensors that the module returns.
        cuts: Paths of modules, outside stacks, that become separate subprograms.
        layer_results: further results of the graph by name: paths of layers in stacks, each of which returns a tensor.
        rare: the entry point is seldom run; -O2 spends no compile time on it alone.
        shorten: capture only the distinct layers of equal stacks.
        kinds: equal layers of stacks, where they are known, see `stacks.repeating`.
        refuse_numbers: refuse code that makes a number or a text of a value and does not use it in the graph: text,
            type checks, and caught errors would be those of the capture.
    """
    stacks, states = find_stacks(module, keep_states=bool(states)), states or {}
    mode, lines = FakeTensorMode(allow_non_fake_inputs=True), Lines()
    with fake_parameters(module, mode), torch.no_grad(), quiet():
        try:
            if shorten:
                recording = functools.partial(_recorded, module, inputs, states, mode)
                stacks = repeating(stacks, recording, keep_states=bool(states), kinds=kinds)
            captured_states = _kept_states(states, stacks)
            with shortened(module, stacks):
                tensors, state_tensors = _empty(inputs, mode), _empty(captured_states, mode)
                arguments = (*tensors.values(), list(state_tensors.values())) if states else tuple(tensors.values())
                # Nobody runs the modules that export makes on its way, so none of them needs code.
                with source_lines(lines), use_lazy_graph_module(True):
                    exported = torch.export.export(module, arguments, strict=False)
                write_out(exported.graph_module)
                if torch.is_autocast_enabled("cpu") or any(map(region_of, exported.graph.nodes)):
                    write_casts(exported.graph_module)
            drop_unused(exported.graph)
        except Exception as error:
            # Python does much with numbers that it cannot do with the symbol of a value, and errors are of many kinds.
            if isinstance(error, RuntimeError) or (lines.read and not isinstance(error, NeuronError)):
                raise capture_error(module, name, error, lines.read) from error
            raise
    if refuse_numbers and (line := lines.without_use(exported.graph)):
        raise _number_error(module, name, line)
    require_equal_dtypes(exported, name)
    return Captured(
        name=name,
        exported=exported,
        inputs=tuple(inputs),
        states=tuple(captured_states),
        outputs=outputs,
        stacks=stacks,
        tied=_tied_names(module),
        cuts=cuts,
        layer_results=layer_results or {},
        rare=rare,
        role=role,
        sizes=sizes or {},
    )


def _number_error(module: nn.Module, name: str, line: str) -> CaptureError:
    message = f"{type(module).__name__} cannot be captured as graph '{name}': {line} makes a number or a text of a "
    message += "tensor's value, which has no value while the model is traced."
    hint = "Compute with the tensor, or move this line out of forward()."
    return CaptureError(message, hint=hint, graph=name, source_line=line)


def drop_unused(graph: fx.Graph) -> None:
    """Remove calls without effect or use: they are not compiled, and their operators are not refused either."""
    graph.eliminate_dead_code(is_impure_node=_has_effect)


def _has_effect(node: fx.Node) -> bool:
    """Return whether a node does more than return a result; nodes inside a region are not checked."""
    if node.op != "call_function":
        return True
    return writes(node) or not (node.target is operator.getitem or hasattr(node.target, "_schema"))


def _recorded(
    module: nn.Module,
    inputs: Mapping[str, TensorSpec],
    states: Mapping[str, TensorSpec],
    mode: FakeTensorMode,
    stacks: tuple[Stack, ...],
) -> list[Segment]:
    """Result of running the module with the captured layers of its stacks."""
    layers = [path for stack in stacks for path in stack.captured_layers]
    with shortened(module, stacks), mode:
        return record(module, _empty(inputs, mode), _empty(_kept_states(states, stacks), mode), layers)


def _kept_states(states: Mapping[str, TensorSpec], stacks: tuple[Stack, ...]) -> dict[str, TensorSpec]:
    """States of the captured layers."""
    short = [stack.captured.value for stack in stacks if stack.captured.value < stack.num_layers]
    return {name: spec for name, spec in states.items() if not short or int(name.rpartition(".")[2]) < min(short)}


def _tied_names(module: nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    tied = {
        name: first.setdefault(id(tensor), name) for name, tensor in module.named_parameters(remove_duplicate=False)
    }
    return {name: original for name, original in tied.items() if name != original}


Fakes = list[tuple[dict[str, Any], str, torch.Tensor]]
"""Fake tensors, each with the parameters or buffers of a module that it belongs to and its name there."""


def fakes_of(module: nn.Module, mode: FakeTensorMode) -> Fakes:
    """Return fakes on the CPU of parameters, and of buffers but computed ones; ties are kept."""
    placed: Fakes = []
    fakes: dict[int, torch.Tensor] = {}
    for owner in module.modules():
        computed = owner._non_persistent_buffers_set  # their values are part of the graph, unless there are none
        buffers = [n for n, b in owner._buffers.items() if n not in computed or (b is not None and b.is_meta)]
        for store, names in ((owner._parameters, list(owner._parameters)), (owner._buffers, buffers)):
            for name in names:
                tensor = store[name]
                if tensor is None:
                    continue
                if id(tensor) not in fakes:
                    with mode:
                        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                    is_parameter = isinstance(tensor, nn.Parameter)
                    fakes[id(tensor)] = nn.Parameter(fake, requires_grad=False) if is_parameter else fake
                placed.append((store, name, fakes[id(tensor)]))
    return placed


@contextlib.contextmanager
def swapped(fakes: Fakes) -> Iterator[None]:
    """Put fakes in the place of parameters and buffers, and put these back."""
    own = [store[name] for store, name, _ in fakes]
    try:
        for store, name, fake in fakes:
            store[name] = fake
        yield
    finally:
        for (store, name, _), tensor in zip(fakes, own, strict=True):
            store[name] = tensor


def fake_parameters(module: nn.Module, mode: FakeTensorMode) -> contextlib.AbstractContextManager[None]:
    """Swap parameters, and buffers but computed ones, for fakes inside a block."""
    return swapped(fakes_of(module, mode))


def _empty(specs: Mapping[str, TensorSpec], mode: FakeTensorMode) -> dict[str, torch.Tensor]:
    with mode:
        return {name: torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for name, spec in specs.items()}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Tracing warns about torch's internals, and logs errors that are raised here anyway."""
    noisy = [logging.getLogger(name) for name in _NOISY_LOGGERS]
    levels = [logger.level for logger in noisy]
    printed = io.StringIO()
    for logger in noisy:
        logger.setLevel(logging.CRITICAL)
    try:
        # Export prints the graph so far before it raises; output of the model in a successful capture is passed on.
        with warnings.catch_warnings(), contextlib.redirect_stderr(printed):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(noisy, levels, strict=True):
            logger.setLevel(level)
    sys.stderr.write(printed.getvalue())


def _is_users(file: Path) -> bool:
    own, python = Path(__file__).resolve().parents[1], Path(sysconfig.get_path("stdlib")).resolve()
    is_library = python in file.parents and not {"site-packages", "dist-packages"} & set(file.parts)
    return "torch" not in file.parts and own not in file.parents and not is_library


def capture_error(module: nn.Module, name: str, error: Exception, read: str | None = None) -> CaptureError:
    """Return the error for a module that cannot be traced.

    It names the user's line: the innermost frame that is not torch, Python, or this package, or else `read`, where a
    value became a number.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(Path(frame.filename).resolve())]
    where = read or "an unknown line"
    if frames:
        where = f"{frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}"
    first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    message = f"{type(module).__name__} cannot be captured as graph '{name}': {where} cannot be traced ({first_line}). "
    message += "Control flow and shapes of a compiled graph may not depend on tensor values."
    hint = "Compute the value with torch.where or masks, or move the decision out of forward()."
    return CaptureError(message, hint=hint, graph=name, source_line=where, torch_error=type(error).__name__)


_NORMS = frozenset(
    {
        "aten._native_batch_norm_legit",
        "aten._native_batch_norm_legit_no_training",
        "aten.batch_norm",
        "aten.group_norm",
        "aten.instance_norm",
        "aten.layer_norm",
        "aten.native_batch_norm",
        "aten.native_group_norm",
        "aten.native_layer_norm",
    }
)
"""Operators that take parameters of the input's dtype, or of float32 for a 16-bit input."""

_PRODUCTS = frozenset({"aten.addmm", "aten.baddbmm", "aten.bmm", "aten.linear", "aten.matmul", "aten.mm"})
"""Operators that take operands of one dtype."""

_HALVES = ("bfloat16", "float16")


def require_equal_dtypes(exported: ExportedProgram, name: str) -> None:
    """Raise an error for calls that torch itself rejects; `name` is the entry point."""
    nodes = [node for node in exported.graph.nodes if node.op == "call_function"]
    checked = [OpCall.from_node(n) for n in nodes if base_name(op_name(n.target)) in _NORMS | _PRODUCTS]
    calls = [call for call in checked if _is_mixed(call)]
    if calls:
        problems = [f"{call.name} of {_dtypes(call)} in {call.source_line or call.module_path}" for call in calls]
        message = f"Graph '{name}' mixes dtypes that torch does not combine: {'; '.join(dict.fromkeys(problems))}."
        hint = "Cast the input with x.to(weight.dtype), or keep the module in the dtype of its input."
        raise CaptureError(message, hint=hint, graph=name, problems=problems)


def _is_mixed(call: OpCall) -> bool:
    kinds = {spec.dtype for spec in call.inputs}
    if call.name in _NORMS and call.inputs[0].dtype in _HALVES:
        kinds.discard("float32")
    return len(kinds) > 1


def _dtypes(call: OpCall) -> str:
    return " and ".join(dict.fromkeys(spec.dtype for spec in call.inputs))
