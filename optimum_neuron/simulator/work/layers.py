"""Layers to work: products, norms and elementwise passes, counted while a model is walked through by its sizes.

For models that this package reads from a configuration alone. Each method adds the same work as `work.graph` for the
same operator of a captured graph; a test compares them. It does not depend on any model.

    >>> layers = Layers(element_bytes=2)
    >>> layers.linear(8, 16, 32)
    >>> layers.num_parameters, layers.graph("mlp").total.product_flops
    (544, 8192)
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from ...compiler import contiguous_bytes, convolution_cycles, product_cycles
from ...core import AutoCast
from .graph import FLOAT32_CYCLES, SBUF_BYTES
from .record import GraphWork, Step, Work

NORM_PASSES = 3
"""Passes of a normalization, as `compiler.work.PASSES` has them."""
WRITTEN_NORM_PASSES = 4
"""Passes of a root mean square norm that is written out: square, mean, two products."""


@dataclasses.dataclass(kw_only=True)
class Layers:
    """The layers of one graph on one of the cores that share it."""

    element_bytes: int
    """Bytes of a weight and of a value."""
    auto_cast: AutoCast = "none"
    """Rounding of float32 products, which then run and are read in 16 bits."""
    num_cores: int = 1
    """Cores that share products which are split."""
    num_parameters: int = 0
    """Of the whole model."""
    local_parameters: int = 0
    """Those that one core keeps."""
    largest_bytes: int = 0
    """Bytes of the largest value between layers."""
    steps: list[Step] = dataclasses.field(default_factory=list)

    def linear(
        self,
        rows: int,
        inner: int,
        columns: int,
        *,
        bias: bool = True,
        split: Literal["columns", "rows"] | None = None,
        count: int = 1,
    ) -> None:
        """`count` products with weights; split by columns, or by rows with the all-reduce that joins the parts."""
        local_inner = math.ceil(inner / self.num_cores) if split == "rows" else inner
        local_columns = math.ceil(columns / self.num_cores) if split == "columns" else columns
        made = rows * local_columns
        joined = split == "rows" and self.num_cores > 1
        work = (
            self._product(2 * rows * local_inner * local_columns, product_cycles(rows, local_inner, local_columns))
            + self._weight(local_inner * local_columns, contiguous_bytes(local_inner, local_columns, self._read_bytes))
            + self._vector(bias * local_columns)
            + Work(
                vector_elements=made,
                spill_bytes=self._spilled(made),
                num_collectives=int(joined),
                collective_bytes=joined * made * self.element_bytes,
            )
        )
        for _ in range(count):
            self._keep(inner * columns + bias * columns, local_inner * local_columns + bias * local_columns)
            self._add("aten.linear", work)

    def convolution(
        self, positions: int, channels_in: int, channels_out: int, *, kernel: int = 3, bias: bool = True
    ) -> None:
        """A convolution over `positions` pixels of its result, rows of the batch included."""
        taps, matrix = kernel**2, channels_in * channels_out
        self._keep(taps * matrix + bias * channels_out)
        made = positions * channels_out
        self._add(
            "aten.conv2d",
            self._product(2 * made * channels_in * taps, convolution_cycles(positions, channels_in, channels_out, taps))
            + self._weight(taps * matrix, taps * contiguous_bytes(channels_in, channels_out, self._read_bytes))
            + self._vector(bias * channels_out)
            + Work(vector_elements=made, spill_bytes=self._spilled(made)),
        )

    def attention(self, batch_heads: int, rows: int, slots: int, size: int) -> None:
        """Scores of `rows` queries with `slots` keys, softmax, and the product with the values, for each head."""
        cycles = product_cycles(rows, size, slots) + product_cycles(rows, slots, size)
        made = batch_heads * rows * size
        flops = 4 * batch_heads * rows * slots * size
        self._add(
            "aten.scaled_dot_product_attention",
            dataclasses.replace(
                self._product(flops, 0),
                attention_cycles=self._slow * batch_heads * cycles,
                vector_elements=made,
                softmax_elements=batch_heads * rows * slots,
                spill_bytes=self._spilled(made),
            ),
        )

    def normed_convolution(self, positions: int, channels_in: int, channels_out: int) -> None:
        """A group norm with its activation, and a convolution, as in U-Nets and autoencoders."""
        self.norm(positions * channels_in, 2 * channels_in)
        self.elementwise(positions * channels_in)
        self.convolution(positions, channels_in, channels_out)

    def norm(self, elements: int, parameters: int = 0, *, passes: int = NORM_PASSES) -> None:
        """A normalization of `elements` values, with its own scales and offsets where it has them."""
        self._keep(parameters)
        spilled = self._spilled(elements)
        work = Work(flops=elements, vector_elements=passes * elements, spill_bytes=spilled)
        self._add("normalization", work + self._vector(parameters))

    def elementwise(self, elements: int, *, times: int = 1, parameters: int = 0, split: bool = False) -> None:
        """`times` passes over `elements` values: additions, products, activations; with a parameter of each column."""
        self._keep(parameters)
        local = math.ceil(elements / self.num_cores) if split else elements
        work = Work(flops=local, vector_elements=local, spill_bytes=self._spilled(local))
        self._add("elementwise", work.scaled(times) + self._vector(parameters))

    def table(self, rows: int, columns: int, looked_up: int) -> None:
        """A table of `rows` vectors, of which a run looks up some."""
        self._keep(rows * columns)
        size_bytes = looked_up * columns * self.element_bytes
        self._add("aten.embedding", Work(weight_bytes=size_bytes, weight_rows=looked_up))

    def graph(self, name: str, *, host_bytes: int = 0) -> GraphWork:
        """All counted work, including copies between host and device."""
        host = Step(name="host", work=Work(host_bytes=host_bytes))
        return GraphWork(name=name, steps=(*self.steps, host))

    @property
    def local_bytes(self) -> int:
        """Bytes of weights that one core keeps."""
        return self.local_parameters * self.element_bytes

    @property
    def _read_bytes(self) -> int:
        return min(self.element_bytes, 2) if self.auto_cast != "none" else self.element_bytes

    @property
    def _slow(self) -> int:
        return FLOAT32_CYCLES if self.element_bytes == 4 and self.auto_cast == "none" else 1

    def _add(self, name: str, work: Work) -> None:
        self.steps.append(Step(name=name, work=work))

    def _keep(self, whole: int, local: int | None = None) -> None:
        self.num_parameters += whole
        self.local_parameters += whole if local is None else local

    def _product(self, flops: int, cycles: int) -> Work:
        return Work(flops=flops, product_flops=flops, tensor_cycles=self._slow * cycles)

    def _weight(self, elements: int, piece_bytes: float) -> Work:
        size_bytes = elements * self._read_bytes
        return Work(weight_bytes=size_bytes, weight_rows=size_bytes / piece_bytes)

    def _vector(self, elements: int) -> Work:
        return Work(weight_bytes=elements * self.element_bytes, weight_rows=1 if elements else 0)

    def _spilled(self, elements: int) -> int:
        size_bytes = elements * self.element_bytes
        self.largest_bytes = max(self.largest_bytes, size_bytes)
        return 2 * size_bytes if size_bytes > SBUF_BYTES else 0
