"""Inputs and results of a compiled program, axis by axis: written into its NEFF, read by its runners.

A signature has one part for each role of entry points (`compiler.ir.Role`); graphs of one role differ in sizes only.
With the program's graphs it is sufficient for running: the padding of each input, and the real part of each result.

    signature = Signature.from_dict(metadata["signature"])
    signature["forward"].inputs[0].axes      # ("batch_size", "sequence_length")
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from ..base.typed_data import Range, misfits
from ..compiler import Graph, Program, Role
from ..errors import ArtifactError
from ..models import LAYER_STATES

BATCH_AXES = ("batch_size", "text_batch_size", "image_batch_size", "num_images", "num_audios")
"""Axes of independent rows: a batch can be split along them."""
REPEATED_AXES = (*BATCH_AXES, "num_choices")
"""Axes that are padded with the first row, which is a valid one."""

_LARGEST, _MOST_DIMS = 2**31 - 1, 64
"""Largest integer of a signature, and PyTorch's most dimensions."""

ADAPTER_INDEX = "adapter_index"
"""Last input of a decoder's graphs if it has LoRA adapters: the index of each row's adapter, 0 for the base model."""


def is_of_layer(name: str) -> bool:
    """Return whether a result is the hidden states of a layer, which a graph returns for every token of a call."""
    return name.startswith(LAYER_STATES)


STATE_ROW = "state_row"
"""Input of chunks of prompts in continuous batching: which row of the states without slots they continue."""
NEXT_TOKEN, TOP_LOGITS, TOP_TOKENS = SAMPLED = ("next_token", "top_logits", "top_tokens")
"""Results of decode steps that sample on the device: the first of the largest logits [rows, 1, 1], and the largest
logits [rows, 1, K] in descending order with their tokens."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """One tensor that an entry point takes."""

    name: str
    dtype: str
    """torch's name of the dtype that the graph takes."""
    axes: tuple[str, ...]
    """Axis of each dimension."""
    padding: Annotated[float, Range(-_LARGEST, _LARGEST)] = 0
    """Value that shorter rows are padded with."""
    default: Annotated[int, Range(-_LARGEST, _LARGEST)] | None = None
    """Value that fills the tensor if the caller leaves it out; None for a required input."""
    limit: Annotated[int, Range(0, _LARGEST)] | None = None
    """Values are below this: the number of rows of an embedding."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputAxis:
    """A dimension of a result whose size follows an axis of the inputs."""

    dim: Annotated[int, Range(-_MOST_DIMS, _MOST_DIMS)]
    """Dimension of the result."""
    axis: str
    window: Annotated[int, Range(1, _LARGEST)] = 1
    """Input elements that one element sees."""
    stride: Annotated[int, Range(1, _LARGEST)] = 1
    """Input elements from one element to the next."""

    def size(self, length: int) -> int:
        """Return how many elements `length` input elements give."""
        return max((length - self.window) // self.stride + 1, 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoleSignature:
    """Inputs and results of the entry points of one role, and which axes may be padded."""

    inputs: tuple[Input, ...]
    """In the order of the graph."""
    outputs: dict[str, tuple[OutputAxis, ...]]
    """Results with the dimensions that are cut; "hidden_states.0" is an element of a tuple."""
    padded: dict[str, str] = dataclasses.field(default_factory=dict)
    """Axes whose inputs may be shorter than a bucket, each with the reason why that is exact."""
    exact: dict[str, str] = dataclasses.field(default_factory=dict)
    """Axes whose size must be one of the buckets, each with the reason."""
    output_type: str = ""
    """Full name of transformers' class of results."""
    smallest: dict[str, Annotated[int, Range(0, _LARGEST)]] = dataclasses.field(default_factory=dict)
    """Smallest sizes above 1: a convolution needs a whole window of samples for one frame."""
    ignored: tuple[str, ...] = ()
    """Inputs that the model's processor makes and the reference model drops too."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(spec.name for spec in self.inputs)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis of the inputs, once."""
        return tuple(dict.fromkeys(axis for spec in self.inputs for axis in spec.axes))

    def sizes(self, graph: Graph) -> dict[str, int]:
        """Return the size of each axis of a graph of this role."""
        sizes: dict[str, int] = {}
        for spec in self.inputs:
            sizes |= dict(zip(spec.axes, graph.inputs[spec.name].shape, strict=True))
        return sizes

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RoleSignature:
        """Rebuild from plain data."""
        inputs = tuple(Input(**{**row, "axes": tuple(row["axes"])}) for row in data["inputs"])
        outputs = {name: tuple(OutputAxis(**row) for row in rows) for name, rows in data["outputs"].items()}
        return cls(**{**data, "inputs": inputs, "outputs": outputs, "ignored": tuple(data["ignored"])})


@dataclasses.dataclass(frozen=True, kw_only=True)
class StateSignature:
    """Tensors that the device keeps, one for each layer: their axes, and whose they are."""

    axes: tuple[str, ...]
    """Axis of each dimension; the first one is that of sequences, or of the blocks that sequences share."""
    is_shared: bool = False
    """Whether the sequences of one source have equal contents, as keys and values of cross-attention."""
    is_fixed: bool = False
    """Whether a prompt sets it, and later tokens only read it."""

    @property
    def has_slots(self) -> bool:
        """Whether every token has its own place in it."""
        return "num_slots" in self.axes or "block_size" in self.axes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signature:
    """A compiled model: inputs and results of each role, and its device-resident state."""

    roles: dict[Role, RoleSignature]
    """By role of the entry points."""
    states: dict[str, StateSignature] = dataclasses.field(default_factory=dict)
    """By name without the layer, for example "key_cache" for "key_cache.3"."""

    def __getitem__(self, role: Role) -> RoleSignature:
        return self.roles[role]

    @property
    def is_paged(self) -> bool:
        """Whether tables assign blocks of the cache to sequences."""
        return "decode" in self.roles and "block_table" in self["decode"].names

    def state_size(self, program: Program, axis: str) -> int:
        """Return the size of an axis of the states, for example "num_slots"."""
        for name, spec in program.states.items():
            axes = self.states[name.rpartition(".")[0]].axes
            if axis in axes:
                return spec.shape[axes.index(axis)]
        raise AssertionError(f"no state has the axis {axis}")

    def smallest_ring(self, program: Program) -> int | None:
        """Return the fewest slots of a layer that keeps the newest tokens only; None if every token has a slot."""
        seen = [graph.sizes["num_slots"] for graph in program.graphs.values() if "num_slots" in graph.sizes]
        axes = [(spec, self.states[name.rpartition(".")[0]].axes) for name, spec in program.states.items()]
        sizes = [spec.shape[names.index("num_slots")] for spec, names in axes if "num_slots" in names]
        return min((size for size in sizes if any(size < slots for slots in seen)), default=None)

    def num_forgettable(self, program: Program) -> int | None:
        """Return how many of the newest tokens a full ring can forget; None if every token has a slot."""
        return None if self.smallest_ring(program) is None else max(program.by_size("extend"), default=1)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, file: Path | str = "the compiled model") -> Signature:
        """Rebuild from plain data; NEFFs of version 0.1 had the one role of encoders alone."""
        hint, key = "Export the model again.", "signature"
        try:
            signature = cls._built(data)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            message = f"The signature of {file} is damaged: {type(error).__name__}: {error}."
            raise ArtifactError(message, hint=hint, file=str(file), key=key, problem=str(error)) from error
        for misfit in misfits(signature, cls, key):
            message = f"The signature of {file} is damaged: {misfit}."
            raise ArtifactError(message, hint=hint, file=str(file), key=misfit.key, value=misfit.value)
        return signature

    def problems(self, program: Program) -> list[str]:
        """Return how the signature differs from the graphs and states of a program."""
        states = {name.rpartition(".")[0]: len(spec.shape) for name, spec in program.states.items()}
        own_states = {name: len(spec.axes) for name, spec in self.states.items() if name in states}
        found = [f"its signature has other states than {', '.join(states)}"] if own_states != states else []
        for name, graph in program.graphs.items():
            role = self.roles.get(graph.role)
            taken = {} if role is None else {spec.name: len(spec.axes) for spec in role.inputs}
            if role is None or list(taken.items()) != [(key, len(spec.shape)) for key, spec in graph.inputs.items()]:
                found.append(f"its signature has other inputs than the graph {name}")
            elif role.outputs.keys() != graph.outputs.keys():
                found.append(f"its signature has other results than the graph {name}")
        return found

    @classmethod
    def _built(cls, data: Mapping[str, Any]) -> Signature:
        if "inputs" in data:
            return cls(roles={"forward": RoleSignature.from_dict(data)})
        return cls(
            roles={role: RoleSignature.from_dict(row) for role, row in data["roles"].items()},
            states={
                name: StateSignature(**{**row, "axes": tuple(row["axes"])}) for name, row in data["states"].items()
            },
        )


def reads_features(names: Iterable[str]) -> bool:
    """Return whether the inputs of a prefill or score graph have features."""
    return any(name.endswith("_features") for name in names)
