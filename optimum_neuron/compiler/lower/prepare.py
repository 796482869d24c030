"""Transformations of weights, done once at load because the host is faster on the result: packed, or with the norm
folded in.

`find` looks at one body, `plan_preparations` at a whole program: a weight is prepared only if every use of it agrees,
so that one tensor takes the place of another and nothing else changes. It does not depend on files or on the chip.

    plan = plan_preparations(program, {"sub_..."})
    weights = plan.apply(weights)          # for the executor
    plan.of_subprogram["sub_..."]          # for the code that is generated

Convolutions compute in channels-last order, so images stay in it between compiled subgraphs (`channels_last`). A
subgraph is compiled for one layout of each argument: contiguous, unless it is listed. Only values between compiled
subgraphs with convolutions are; inputs and outputs of a graph are contiguous.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import fx

from ...base.core import TensorSpec
from ...weights import BoundTensors
from ..ir import Call, Program
from . import few_rows, panels, winograd
from .choose import CpuFeatures, has_onednn, max_streamed_rows, probe_cpu
from .convolutions import fused_convolution
from .panels import readers

_ATEN = torch.ops.aten


CONVOLUTION_KINDS = ("convolution", "winograd")
"""Kinds of preparations of the weights of convolutions."""

Place = TypeVar("Place", int, str)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation(Generic[Place]):
    """Replacements before reading; places are arguments of a body, or weights of a program."""

    kind: str
    """"linear", "panels", "expert_panels", "convolution", or "winograd"; "channels_last" is about data: `sources` are
    positions of arguments that come in this order, `targets` those of results that leave in it."""
    sources: tuple[Place | None, ...]
    """Sources: positions of arguments, or names; None where the operator has none."""
    targets: tuple[Place, ...]
    """Weights that the results replace."""
    options: tuple[Any, ...] = ()
    size: tuple[int, ...] = dataclasses.field(default=(), compare=False)
    """Shape of the data that it meets, or the rows of a product: the first of several serves all, as a layout may only
    be slower for others."""

    def to_list(self) -> list[Any]:
        """Plain data for another process."""
        return [self.kind, list(self.sources), list(self.targets), list(self.options)]

    @classmethod
    def from_list(cls, data: list[Any]) -> Preparation[Place]:
        """Inverse of `to_list`."""
        kind, sources, targets, options = data
        return cls(kind=kind, sources=tuple(sources), targets=tuple(targets), options=_frozen(options))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparations:
    """Preparations of a program."""

    of_subprogram: Mapping[str, tuple[Preparation[int], ...]]
    """By subprogram name; empty where nothing is prepared."""
    of_weights: tuple[Preparation[str], ...]
    """The same by weight, each once."""
    _last: list[Any] = dataclasses.field(default_factory=list, compare=False, repr=False)

    def apply(self, weights: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return weights with the prepared ones in place; replicas of a program with the same weights share them."""
        if not self._last or self._last[0] is not weights:
            self._last[:] = [weights, self._prepare(weights)]
        return self._last[1]

    def _prepare(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        for named in self.of_weights:
            sources = [None if name is None else weights[name] for name in named.sources]
            with torch.no_grad():
                tensors |= dict(zip(named.targets, _COMPUTE[named.kind](sources, named), strict=True))
            if isinstance(weights, BoundTensors):  # they would be in memory twice
                for name in named.targets:
                    weights.forget(name)
        return {name: tensors[name] if name in tensors else weights[name] for name in weights}


Candidates = dict[str, list[Preparation[int]]]
"""Preparations that each subprogram can take."""

NOTHING = Preparations(of_subprogram={}, of_weights=())
"""Unchanged weights."""


def plan_preparations(program: Program, compiled: Collection[str]) -> Preparations:
    """Decide the preparations of `compiled` subprograms; of the others, those that the operators of a body can take."""
    if not compiled or not has_onednn():
        return NOTHING
    features = probe_cpu()
    candidates = {
        name: find(subprogram.body, features) if name in compiled else list(_panels(subprogram.body, features))
        for name, subprogram in program.subprograms.items()
    }
    calls = [call for graph in program.graphs.values() for call in graph.calls]
    while rejected := set(_disagreeing(program, calls, candidates)):
        candidates = {name: [p for p in ones if (name, p) not in rejected] for name, ones in candidates.items()}
    candidates = _without_lookups(calls, candidates)
    named = [_named(call, one) for call in calls for one in candidates.get(call.subprogram, ())]
    convolving = {name for name, ones in candidates.items() if any(one.kind in CONVOLUTION_KINDS for one in ones)}
    for name, (arguments, results) in channels_last(program, convolving).items():
        candidates[name].append(Preparation(kind="channels_last", sources=arguments, targets=results))
    return Preparations(
        of_subprogram={name: tuple(ones) for name, ones in candidates.items() if ones},
        of_weights=tuple(dict.fromkeys(named)),
    )


def _without_lookups(calls: list[Call], candidates: Candidates) -> Candidates:
    """Leave out weights in panels that no product reads."""
    rows: dict[str, int] = {}
    for call in calls:
        for one in candidates[call.subprogram]:
            if one.kind == "panels":
                name = call.inputs[one.targets[0]]
                rows[name] = max(rows.get(name, 0), *one.size)
    unread = {
        (call.subprogram, one)
        for call in calls
        for one in candidates[call.subprogram]
        if one.kind == "panels" and not rows[call.inputs[one.targets[0]]]
    }
    return {name: [one for one in ones if (name, one) not in unread] for name, ones in candidates.items()}


def _named(call: Call, one: Preparation[int]) -> Preparation[str]:
    names = [value.partition(":")[2] for value in call.inputs]
    return Preparation[str](
        kind=one.kind,
        sources=tuple(None if position is None else names[position] for position in one.sources),
        targets=tuple(names[position] for position in one.targets),
        options=one.options,
        size=one.size,
    )


def _disagreeing(
    program: Program, calls: list[Call], candidates: Mapping[str, list[Preparation[int]]]
) -> Iterator[tuple[str, Preparation[int]]]:
    """Preparations of something that is no weight, or that is also read in another form."""
    uses: dict[str, set[Preparation[str] | None]] = {}
    for call in calls:
        prepared = {
            position: _named(call, one) for one in candidates.get(call.subprogram, ()) for position in one.targets
        }
        for position, value in enumerate(call.inputs):
            uses.setdefault(value, set()).add(prepared.get(position))
    for graph in program.graphs.values():
        for value in graph.outputs.values():
            uses.setdefault(value, set()).add(None)
    for call in calls:
        for one in candidates.get(call.subprogram, ()):
            positions = [position for position in (*one.sources, *one.targets) if position is not None]
            all_weights = all(call.inputs[position].startswith("weight:") for position in positions)
            # The source itself can be anything: it is read before anything is replaced.
            agree = all(uses[call.inputs[position]] == {_named(call, one)} for position in one.targets)
            if not (all_weights and agree):
                yield call.subprogram, one


def find(body: fx.GraphModule, features: CpuFeatures) -> list[Preparation[int]]:
    """Possible preparations of one body, if its arguments are weights."""
    position = {node: index for index, node in enumerate(n for n in body.graph.nodes if n.op == "placeholder")}
    candidates = list(_panels(body, features))
    in_panels = {one.targets[0] for one in candidates}
    for node in body.graph.nodes:
        if node.target == _ATEN.linear.default and position.get(node.args[1]) not in in_panels:
            candidates += _linear(node, position, features)
        elif node.target == _ATEN.conv2d.default:
            candidates += _convolution(node, position, features)
    return candidates


def _panels(body: fx.GraphModule, features: CpuFeatures) -> Iterator[Preparation[int]]:
    if not panels.is_supported(features):
        return
    for place, found in readers.find_readers(body).items():
        kind, options, size = found.kind, (found.is_transposed,), (found.max_rows,)
        yield Preparation(kind=kind, sources=(place,), targets=(place,), options=options, size=size)


def _linear(node: fx.Node, position: Mapping[Any, int], features: CpuFeatures) -> Iterator[Preparation[int]]:
    x, weight = node.args[:2]
    assert isinstance(x, fx.Node) and isinstance(weight, fx.Node)
    rows = math.prod(x.meta["val"].shape[:-1])
    max_streamed = max_streamed_rows(x.meta["val"].dtype, features)
    is_packed = rows > max_streamed and not few_rows.is_faster(features, x.meta["val"], weight.meta["val"])
    if weight in position and len(weight.users) == 1 and is_packed and _fits(weight, features):
        yield Preparation(kind="linear", sources=(position[weight],), targets=(position[weight],))


def _fits(weight: fx.Node, features: CpuFeatures) -> bool:
    """Return whether oneDNN multiplies by a weight as the chip does: with operands as they are, summed in float32."""
    dtype = weight.meta["val"].dtype
    return dtype == torch.float32 or (dtype == torch.bfloat16 and features.has_bf16_dot)


def _convolution(node: fx.Node, position: Mapping[Any, int], features: CpuFeatures) -> Iterator[Preparation[int]]:
    fused = fused_convolution(node)
    stride, padding, dilation, groups = fused.where
    if isinstance(padding, str) or len(fused.weight.users) != 1:
        return
    images, filters = (one.meta["val"] for one in (fused.x, fused.weight))
    kind = "winograd" if winograd.is_faster(features, images, filters, fused.where) else "convolution"
    if kind == "convolution" and not _fits(fused.weight, features):
        return
    if fused.weight not in position or (fused.bias is not None and fused.bias not in position):
        return
    options: tuple[Any, ...] = (_frozen(stride), _frozen(padding), _frozen(dilation), groups)
    weight, bias = position[fused.weight], None if fused.bias is None else position[fused.bias]
    sources: tuple[int | None, ...] = (weight,)
    targets: tuple[int, ...] = (weight,)
    if fused.norm is not None:
        _, gamma, beta, mean, var, _, _, eps, _ = fused.norm.args
        sources = (weight, *(position[node] for node in (gamma, beta, mean, var)), bias)
        targets, options = (weight, position[beta]), (*options, eps)
    yield Preparation(kind=kind, sources=sources, targets=targets, options=options, size=tuple(images.shape))


def _frozen(value: object) -> Any:
    return tuple(_frozen(part) for part in value) if isinstance(value, (list, tuple)) else value


def _pack_linear(sources: list[Any], named: Preparation[str]) -> list[torch.Tensor]:
    from ...upstream.torch import reorder_linear_weight

    return [reorder_linear_weight(sources[0].contiguous())]


def _write_panels(sources: list[Any], named: Preparation[str]) -> list[torch.Tensor]:
    return [panels.panels(sources[0], is_transposed=named.options[0])]


def _prepare_convolution(sources: list[Any], named: Preparation[str]) -> list[torch.Tensor]:
    """With a norm, `gamma * (w * x + b - mean) / sqrt(var + eps) + beta` is a convolution again."""
    from ...upstream.torch import reorder_convolution_weight

    weight, *norm = sources
    stride, padding, dilation, groups, *rest = named.options
    bias = []
    if norm:
        gamma, beta, mean, var, conv_bias = norm
        scale = gamma.float() * torch.rsqrt(var.float() + rest[0])
        bias = [(beta + ((0 if conv_bias is None else conv_bias) - mean) * scale).to(beta.dtype)]
        weight = (weight * scale[:, None, None, None]).to(weight.dtype)
    if named.kind == "winograd":
        return [winograd.chunks(weight), *bias]
    weight = weight.contiguous(memory_format=torch.channels_last)
    return [reorder_convolution_weight(weight, padding, stride, dilation, groups, named.size), *bias]


_COMPUTE = {
    "linear": _pack_linear,
    "panels": _write_panels,
    "expert_panels": _write_panels,
    "convolution": _prepare_convolution,
    "winograd": _prepare_convolution,
}


Layouts = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
"""Subprogram name to the positions of its arguments and of its results that are in channels-last order."""


def channels_last(program: Program, convolving: Collection[str]) -> Layouts:
    """Find images that can stay in channels-last order between the compiled subprograms with convolutions."""
    places: dict[tuple[str, str], set[tuple[str, str, int]]] = defaultdict(set)  # value to where bodies have it
    for graph in program.graphs.values():
        for call in graph.calls:
            for kind, values in (("in", call.inputs), ("out", call.outputs)):
                for index, value in enumerate(values):
                    places[graph.name, value].add((call.subprogram, kind, index))
    images = {
        (graph.name, value)
        for graph in program.graphs.values()
        for call in graph.calls
        for value in call.outputs
        if value not in graph.outputs.values() and _is_image(program.value_spec(graph, value))
    }
    positions: set[tuple[str, str, int]] = set()
    while images:
        contiguous = {place for value, ones in places.items() if value not in images for place in ones}
        wrong = {value for value in images if any(p[0] not in convolving or p in contiguous for p in places[value])}
        if not wrong:
            positions = {place for value in images for place in places[value]}
            break
        images -= wrong
    return {
        name: tuple(
            tuple(sorted(index for sub, kind, index in positions if (sub, kind) == (name, direction)))
            for direction in ("in", "out")
        )  # type: ignore[misc]
        for name in {place[0] for place in positions}
    }


def _is_image(spec: TensorSpec) -> bool:
    return len(spec.shape) == 4 and spec.dtype in ("float32", "bfloat16")
