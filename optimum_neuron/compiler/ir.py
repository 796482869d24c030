"""The intermediate representation: a program is entry graphs, which call subprograms, which are FX graphs of ATen.

    Program
      graphs       "prefill_128", "decode_512" ...: ordered calls with named values
      subprograms  each distinct FX body once, named by its content
      weights      tensors that a checkpoint provides; states: tensors that live on the device

A value inside a graph is a string: "input:input_ids", "weight:model.norm.weight", "const:inv_freq",
"state:key_cache.3", "tmp:7", or "rank:", the rank of the core in the group that shares the model. It does not depend on
files, targets or execution; `serialize.py` turns FX bodies into JSON and back.

Bodies are graph modules whose Python is written when they are first run, if ever, and freed with them (`lazy_module`).
torch writes the source of a `GraphModule` when it is made: a tenth of the time of a load. It keeps each source in two
caches for tracebacks, too, and never removes it (torch 2.13, `torch/fx/graph_module.py: _EvalCacheLoader`), so that a
process that loads and unloads models would grow with every load.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import linecache
import re
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ..base.core import TensorSpec
from ..upstream import torch as private

if TYPE_CHECKING:
    import torch
    from torch import fx

IR_VERSION = 3
"""Raised when a stored program can no longer be read by older code. Version 1 had no roles and sizes of graphs, 2 no
stages."""

RANK_VALUE = "rank:"
"""Rank of a core in the group that shares a model, an int64 scalar."""

Role = Literal["forward", "encode", "encode_image", "encode_audio", "prefill", "score", "extend", "decode"]
"""Role of an entry point, for its callers:

forward       inputs to results, nothing is kept
encode        a source to hidden states, which an encoder-decoder reads
encode_image  pixels to features, which stand for image tokens of a prompt
encode_audio  a spectrogram to features, which stand for audio tokens of a prompt
prefill       fills the cache, logits of the last token; for an encoder-decoder the first token of a target
score         the same with logits of every token
extend        several more tokens of sequences that are in the cache, logits of every one
decode        one more token of sequences that are in the cache
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subprogram:
    """One straight-line FX body of ATen calls, named by the hash of its content."""

    name: str
    """"sub_" and the first 16 hex digits of the content hash."""
    body: fx.GraphModule
    """Placeholders in order of `inputs`; returns a tuple in order of `outputs`."""
    inputs: tuple[TensorSpec, ...]
    """Shapes and dtypes of the arguments."""
    outputs: tuple[TensorSpec, ...]
    """Shapes and dtypes of the results."""
    mutated: tuple[int, ...] = ()
    """Arguments that the body writes in place: device-resident state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a subprogram inside a graph."""

    subprogram: str
    """Name in `Program.subprograms`."""
    inputs: tuple[str, ...]
    """Values, one for each argument."""
    outputs: tuple[str, ...]
    """Fresh "tmp:" values, one for each result."""
    module_path: str = ""
    """Module path of the call in the user's model, for example "model.layers.3"."""
    stage: int = 0
    """Pipeline stage whose cores run the call, counted from 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """One entry point with static shapes."""

    name: str
    """A label, for example "prefill_128"; `role` and `sizes` describe it."""
    inputs: dict[str, TensorSpec]
    """Inputs from the caller."""
    outputs: dict[str, str]
    """Result name to value."""
    calls: tuple[Call, ...]
    """Executed in order."""
    rare: bool = False
    """Seldom run: -O2 spends no compile time on bodies that only rare graphs call."""
    role: Role = "forward"
    """Role of the graph."""
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Size of each axis that has buckets, such as {"num_tokens": 128} for a prefill graph."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """Everything a NEFF holds about computation; weights are named, not stored."""

    graphs: dict[str, Graph]
    """Entry points by name."""
    subprograms: dict[str, Subprogram]
    """Bodies by name; shared between graphs."""
    weights: dict[str, TensorSpec]
    """Weights that a checkpoint must provide."""
    states: dict[str, TensorSpec]
    """Device-resident state, kept between calls."""
    constants: dict[str, torch.Tensor]
    """Small tensors computed at capture, such as rotary frequencies."""

    @property
    def num_stages(self) -> int:
        """Pipeline stages that the calls are divided into."""
        return 1 + max((call.stage for graph in self.graphs.values() for call in graph.calls), default=0)

    def by_size(self, role: Role) -> dict[int, str]:
        """Return the entry points of a role by the size of their only axis, rising; 0 stands for no axis.

        Chunks that are shorter than the others of a role have a second axis, see `chunks`.
        """
        graphs = [graph for graph in self.graphs.values() if graph.role == role and len(graph.sizes) < 2]
        return dict(sorted((next(iter(graph.sizes.values()), 0), graph.name) for graph in graphs))

    def chunks(self, role: Role) -> dict[int, dict[int, str]]:
        """Return the entry points of a role that reads chunks of prompts, by their tokens and by the slots they see."""
        found: dict[int, dict[int, str]] = {}
        for graph in self.graphs.values():
            if graph.role == role:
                found.setdefault(graph.inputs["input_ids"].shape[1], {})[graph.sizes["num_slots"]] = graph.name
        return {length: dict(sorted(graphs.items())) for length, graphs in sorted(found.items())}

    def value_spec(self, graph: Graph, value: str) -> TensorSpec:
        """Shape and dtype of a value of a graph."""
        kind, _, name = value.partition(":")
        if kind == "input":
            return graph.inputs[name]
        if kind == "weight":
            return self.weights[name]
        if kind == "state":
            return self.states[name]
        if value == RANK_VALUE:
            return TensorSpec(shape=(), dtype="int64")
        if kind == "const":
            tensor = self.constants[name]
            return TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        for call in graph.calls:
            if value in call.outputs:
                return self.subprograms[call.subprogram].outputs[call.outputs.index(value)]
        raise AssertionError(f"{value} is not produced in graph {graph.name}")

    def structure(self) -> dict[str, Any]:
        """Plain data of everything but the bodies and the constants' bytes."""
        plain = dataclasses.asdict
        return {
            "ir_version": IR_VERSION,
            "graphs": {name: plain(graph) for name, graph in self.graphs.items()},
            "subprograms": {
                name: {
                    "inputs": [plain(spec) for spec in sub.inputs],
                    "outputs": [plain(spec) for spec in sub.outputs],
                    "mutated": list(sub.mutated),
                }
                for name, sub in self.subprograms.items()
            },
            "weights": {name: plain(spec) for name, spec in self.weights.items()},
            "states": {name: plain(spec) for name, spec in self.states.items()},
        }

    def content_hash(self) -> str:
        """sha256 of structure, bodies (by their names, which are hashes) and constants."""
        import torch

        digest = hashlib.sha256(json.dumps(self.structure()).encode())
        for name in sorted(self.constants):
            digest.update(name.encode())
            # As bytes: NumPy lacks bfloat16 and the 8-bit floats.
            digest.update(self.constants[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def graph_from_dict(data: dict[str, Any]) -> Graph:
    """Inverse of the graph part of `Program.structure`."""
    role, sizes = (data["role"], data["sizes"]) if "role" in data else _role_of_version_1(data["name"])
    return Graph(
        name=data["name"],
        inputs={name: spec_from_dict(spec) for name, spec in data["inputs"].items()},
        outputs=dict(data["outputs"]),
        calls=tuple(Call(**{**c, "inputs": tuple(c["inputs"]), "outputs": tuple(c["outputs"])}) for c in data["calls"]),
        rare=data["rare"],
        role=role,
        sizes=dict(sizes),
    )


_SIZED = {
    "encode": "source_length",
    "prefill": "num_tokens",
    "score": "num_tokens",
    "extend": "num_tokens",
    "decode": "num_slots",
}
"""Roles of graphs that IR version 1 named "role_size", with the axis of the size."""


def _role_of_version_1(name: str) -> tuple[Any, dict[str, int]]:
    """Return role and sizes of a graph that was stored without them, when its name had to say both."""
    if name == "encode_image":
        return name, {}
    match = re.fullmatch(rf"({'|'.join(_SIZED)})(?:_(\d+))?", name)
    if match is None:
        return "forward", {}
    return match[1], {} if match[2] is None else {_SIZED[match[1]]: int(match[2])}


def spec_from_dict(data: dict[str, Any]) -> TensorSpec:
    """Inverse of the tensor part of `Program.structure`."""
    return TensorSpec(shape=tuple(data["shape"]), dtype=data["dtype"])


def lazy_module(graph: fx.Graph) -> fx.GraphModule:
    """Return a module of a graph without parameters and submodules."""
    module = private.LazyGraphModule({}, graph)
    forget_source_at_end(module)
    return module


def forget_source_at_end(module: fx.GraphModule) -> None:
    """Remove the source of a module when the module is freed. Until then, tracebacks show it."""
    # Every graph module has its own class, with its own function.
    weakref.finalize(module, _forget, type(module)).atexit = False


def _forget(kind: Any) -> None:
    key = kind.forward.__code__.co_filename
    private.loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)
