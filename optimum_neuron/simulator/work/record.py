"""Work of a computation on one physical NeuronCore, counted exactly and without any measured constant.

A `Work` is a sum of resources: it can be added and multiplied, so a model's work is the sum over its operators. A
`Step` is one operator of a run, or several equal ones; a `GraphWork` is one run of one graph. Seconds belong to
`simulator.time`.

    >>> from optimum_neuron.simulator.work import Work
    >>> (Work(flops=2, weight_bytes=4) + Work(flops=1)).scaled(10).flops
    30
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import Literal

Engine = Literal["tensor", "vector", "dma", "link", "host"]


@dataclasses.dataclass(frozen=True)
class Kernels:
    """Launches of NKI kernels, which add up as numbers do."""

    counts: tuple[tuple[str, int], ...] = ()
    """Key of each kernel, sorted, and its launches."""

    def __add__(self, other: Kernels) -> Kernels:
        if not self.counts or not other.counts:
            return self if self.counts else other
        total = dict(self.counts)
        for key, count in other.counts:
            total[key] = total.get(key, 0) + count
        return Kernels(tuple(sorted(total.items())))

    def __mul__(self, times: int) -> Kernels:
        return Kernels(tuple((key, times * count) for key, count in self.counts if times))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """Resources of one core; every field is a count that adds up."""

    flops: int = 0
    """Operations: two for each multiply-add of products, one for each element of other arithmetic."""
    product_flops: int = 0
    """The matmul part of them: the base of the tensor engine's utilization."""
    tensor_cycles: float = 0.0
    """Tensor-engine cycles of products in 128x128 tiles."""
    attention_cycles: float = 0.0
    """The same, of the two products of attention: a kernel may do them in another way."""
    vector_elements: float = 0.0
    """Elements that pass the vector or the scalar engine, once for each pass."""
    unpacked_elements: float = 0.0
    """Weights that pass the vector engine before the product, because several share a byte."""
    softmax_elements: float = 0.0
    """Attention scores that a softmax passes over."""
    weight_bytes: int = 0
    """Weights read from HBM."""
    weight_rows: float = 0.0
    """Contiguous pieces of those weights in memory, for DMA."""
    state_bytes: int = 0
    """Keys and values read from HBM."""
    attention_reads: int = 0
    """Separate reads of keys and values: one for each layer, row and head of a decode step."""
    num_attentions: int = 0
    """Operators that they belong to: one for each layer."""
    spill_bytes: int = 0
    """Intermediate results that do not fit SBUF: written to HBM and read again."""
    result_bytes: int = 0
    """Results of a graph that stay on the device: written to HBM."""
    num_collectives: int = 0
    """All-reduces between cores."""
    collective_bytes: int = 0
    """Bytes that they reduce."""
    num_sends: int = 0
    """Tensors that come from another pipeline stage."""
    sent_bytes: int = 0
    host_bytes: int = 0
    """Inputs and results copied between host and device."""
    num_unknown: int = 0
    """Calls of operators whose work is not known."""
    kernels: Kernels = Kernels()
    """NKI kernels, whose time is that of their instructions on a target."""

    def __add__(self, other: Work) -> Work:
        return Work(**{name: getattr(self, name) + getattr(other, name) for name in _FIELDS})

    def scaled(self, times: int) -> Work:
        """The work of doing it `times` times."""
        return Work(**{name: getattr(self, name) * times for name in _FIELDS})

    @property
    def hbm_bytes(self) -> int:
        """Bytes that are read from HBM at least: weights, keys and values."""
        return self.weight_bytes + self.state_bytes


_FIELDS = tuple(field.name for field in dataclasses.fields(Work))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Matmul:
    """Sizes of a matrix multiplication with a weight, or of several that are equal."""

    rows: int
    """Rows that each matrix is multiplied with; 0 where matrices are only picked from a weight."""
    inner: int
    columns: int
    num_matrices: int = 1
    """Matrices in the weight, such as experts."""
    element_bytes: float
    """Bytes of one weight, as it is stored."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attention:
    """Sizes of attention in all heads of all sequences."""

    num_rows: int
    num_heads: int
    queries: int
    """Tokens of a sequence that attend."""
    keys: int
    """Tokens that are attended to."""

    @property
    def is_cross(self) -> bool:
        """Whether it is cross-attention: keys and queries differ in number."""
        return self.queries != self.keys


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scan:
    """A recurrent state that the tokens of each sequence change."""

    num_rows: int
    elements: int
    """Elements of the state of one sequence."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One operator of a run, or several that are equal."""

    name: str
    """Operator or role, for example "aten.linear" or "gate_up"."""
    stage: int = 0
    """Pipeline stage that runs it."""
    work: Work
    count: int = 1
    module_path: str = ""
    """Module path in the user's model, for example "model.layers.3.mlp"."""
    source_line: str = ""
    """file:line of the user's code, where known."""
    matmul: Matmul | None = None
    """Its sizes, if it multiplies with a weight, or picks experts from it."""
    attends: Attention | None = None
    scans: Scan | None = None
    """Of an operator that writes a recurrent state: its sizes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphWork:
    """One run of one graph on one of the cores that share it, or on one of each pipeline stage."""

    name: str
    """For example "prefill_128"."""
    steps: tuple[Step, ...]
    unknown: tuple[str, ...] = ()
    """Operators of unknown work: not counted, but reported."""

    @functools.cached_property
    def total(self) -> Work:
        """The sum of all steps."""
        return functools.reduce(operator.add, (step.work.scaled(step.count) for step in self.steps), Work())

    @functools.cached_property
    def by_stage(self) -> tuple[Work, ...]:
        """The sum of the steps of each pipeline stage, which run one after the other."""
        totals = [Work()] * (1 + max((step.stage for step in self.steps), default=0))
        for step in self.steps:
            totals[step.stage] += step.work.scaled(step.count)
        return tuple(totals)

    @property
    def num_calls(self) -> int:
        """Operators of a run."""
        return sum(step.count for step in self.steps)
