"""Record of a forward, operator by operator and layer by layer: the evidence that layers of a stack are equal.

A record is text. A layer's own weights and state are written without its index, and values of the layer before it
without their place, so that layers that do the same have the same text whatever their position:

    aten.mm.default(here:3, here:4)                         results of operators 3 and 4 of this layer
    aten.t.default(weight:#.up.weight float32[8, 4])        this layer's own weight
    aten.add.Tensor(before:17, layers.0:5)                  a result of the layer before, and one of layer 0 itself
    aten.mul.Tensor(between 0:6, 2.0)                       a result from before the stack, and a number

It runs the module once on fake tensors and does not depend on export. Records with equal text are equal computations:
every operator below autograd is there, in order, with the origin of each tensor and the value of everything else.

    segments = record(module, {"x": fake}, {}, ("layers.0", "layers.1"))
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..upstream.torch import FakeTensor, TorchDispatchMode, disable_current_modes, tree_leaves

_QUERIES = (torch.ops.prim.device.default,)
"""Calls that reach a dispatch mode and compute nothing."""

_unknown_ids = itertools.count()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    """Consecutive operators of one layer, or of the code around the layers."""

    place: str
    """Path of the layer, or "between <n>"."""
    operators: list[str] = dataclasses.field(default_factory=list)
    """One line of text for each call."""
    read: set[str] = dataclasses.field(default_factory=set)
    """Results that other segments read."""


def record(
    module: nn.Module, inputs: Mapping[str, torch.Tensor], states: Mapping[str, torch.Tensor], layers: Collection[str]
) -> list[Segment]:
    """Run `module(*inputs)`, or `module(*inputs, states)` with a list of states, and return the record.

    All tensors are fakes, see `capture.fake_parameters`; states are named "<what>.<layer>". `layers` are the paths of
    the modules that get segments of their own.
    """
    names = {id(tensor): f"input:{name}" for name, tensor in inputs.items()}
    names |= {id(tensor): f"state:{name}" for name, tensor in states.items()}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        if isinstance(tensor, FakeTensor):
            names.setdefault(id(tensor), f"weight:{name}")
    recorder = _Recorder(names)
    arguments = [*inputs.values(), list(states.values())] if states else list(inputs.values())
    with _followed(module, layers, recorder), recorder:
        returned = module(*arguments)
    recorder.add("return", tree_leaves(returned), {})
    return recorder.segments


@contextlib.contextmanager
def _followed(module: nn.Module, layers: Collection[str], recorder: _Recorder) -> Iterator[None]:
    """Tell the recorder when a layer begins and ends; one module under several paths has the first."""
    handles, seen = [], set()
    for path in layers:
        layer = module.get_submodule(path)
        if layer in seen:
            continue
        seen.add(layer)
        handles.append(layer.register_forward_pre_hook(lambda *_, path=path: recorder.entered.append(path)))
        handles.append(layer.register_forward_hook(lambda *_: recorder.leave()))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Recorder(TorchDispatchMode):
    """Writes down every call, in segments."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self.segments: list[Segment] = []
        self.entered: list[str] = []
        self._names = names
        self._origins: dict[int, tuple[int, str]] = {}
        self._kept: list[torch.Tensor] = []  # an id is a name only while its tensor lives

    def leave(self) -> None:
        """The innermost layer has ended."""
        self.entered.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func in _QUERIES:
            return func(*args, **(kwargs or {}))
        self.add(str(func), args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        current, position = len(self.segments) - 1, len(self.segments[-1].operators) - 1
        for index, tensor in enumerate(tree_leaves(result)):
            known = id(tensor) in self._names or id(tensor) in self._origins
            if isinstance(tensor, torch.Tensor) and not known:
                self._origins[id(tensor)] = (current, f"{position}.{index}" if index else f"{position}")
                self._kept.append(tensor)
        return result

    def add(self, name: str, args: Any, kwargs: dict[str, Any]) -> None:
        """Append a call to the segment of the outermost layer that is running."""
        self._enter_segment()
        texts = [self._text(value) for value in args] + [f"{key}={self._text(value)}" for key, value in kwargs.items()]
        self.segments[-1].operators.append(f"{name}({', '.join(texts)})")

    def _enter_segment(self) -> None:
        last = self.segments[-1].place if self.segments else None
        if not self.entered and (last is None or not _is_between(last)):
            number = sum(_is_between(segment.place) for segment in self.segments)
            self.segments.append(Segment(place=f"between {number}"))
        elif self.entered and last != self.entered[0]:
            self.segments.append(Segment(place=self.entered[0]))

    def _text(self, value: object) -> str:
        if isinstance(value, torch.Tensor):
            return self._tensor_text(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(self._text(item) for item in value)}]"
        return repr(value)  # tells 2 from 2.0, which compare equal

    def _tensor_text(self, tensor: torch.Tensor) -> str:
        if id(tensor) in self._origins:
            return self._result_text(*self._origins[id(tensor)])
        if id(tensor) not in self._names:
            name = f"unknown {next(_unknown_ids)}" if isinstance(tensor, FakeTensor) else _content(tensor)
            self._names[id(tensor)] = name
            self._kept.append(tensor)
        kind, _, name = self._names[id(tensor)].partition(":")
        here = self.segments[-1].place
        if kind == "weight" and name.startswith(here + "."):
            name = "#" + name.removeprefix(here)
        elif kind == "state" and name.rpartition(".")[2] == here.rpartition(".")[2]:
            name = name.rpartition(".")[0] + ".#"
        return f"{kind}:{name} {tensor.dtype} {list(tensor.shape)}".replace("torch.", "")

    def _result_text(self, segment: int, result: str) -> str:
        current, place = len(self.segments) - 1, self.segments[segment].place
        if segment == current:
            return f"here:{result}"
        self.segments[segment].read.add(result)
        if segment == current - 1 and not _is_between(place):
            return f"before:{result}"
        return f"{place}:{result}"


def _is_between(place: str) -> bool:
    return place.startswith("between ")


def _content(tensor: torch.Tensor) -> str:
    """Name of a tensor that has values."""
    with disable_current_modes():
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return f"const:{hashlib.sha256(data.tobytes()).hexdigest()[:16]}"
