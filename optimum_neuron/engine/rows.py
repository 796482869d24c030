"""Any number of rows through a graph of a fixed number: pad, split over batches and replicas, run, cut.

Padding repeats the first row, never zeros: a padding row then meets no value that a real one does not.

    results = run_rows(lambda part: loaded.run("encode_128", part, state), [ids, mask], compiled_rows=4)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from .packing import smallest_bucket

if TYPE_CHECKING:
    import torch

Name = TypeVar("Name")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows that go through a graph together."""

    begin: int
    """First row."""
    num_rows: int
    """Rows that are real."""
    compiled_rows: int
    """Rows that the graph takes."""

    @property
    def rows(self) -> slice:
        """The real rows, as an index of the whole."""
        return slice(self.begin, self.begin + self.num_rows)


def batches(num_rows: int, buckets: Sequence[int], *, num_replicas: int = 1) -> Iterator[Batch]:
    """Split rows into batches of compiled sizes, as many for each replica.

    Args:
        buckets: numbers of rows that were compiled, rising.

    Example:
        ```python
        from optimum_neuron.engine.rows import batches

        assert [(b.num_rows, b.compiled_rows) for b in batches(9, [1, 4])] == [(4, 4), (4, 4), (1, 1)]
        ```
    """
    largest = smallest_bucket(math.ceil(num_rows / num_replicas), buckets) or buckets[-1]
    for begin in range(0, num_rows, largest):
        size = min(largest, num_rows - begin)
        compiled = smallest_bucket(size, buckets)
        assert compiled is not None, "a batch is at most the largest bucket"
        yield Batch(begin=begin, num_rows=size, compiled_rows=compiled)


def pad_rows(tensor: torch.Tensor, num_rows: int, dim: int = 0) -> torch.Tensor:
    """Repeat the first row of a dimension until there are `num_rows`."""
    import torch

    missing = num_rows - tensor.shape[dim]
    if not missing:
        return tensor
    first = tensor.narrow(dim, 0, 1)
    return torch.cat([tensor, first.expand(*(missing if d == dim else -1 for d in range(tensor.ndim)))], dim)


def run_rows(
    run: Callable[[list[torch.Tensor]], Mapping[Name, torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    *,
    compiled_rows: int,
) -> dict[Name, torch.Tensor]:
    """Run a graph, whose tensors all have `compiled_rows` rows first, on tensors of any equal number of rows."""
    import torch

    parts = []
    for batch in batches(inputs[0].shape[0], [compiled_rows]):
        results = run([pad_rows(tensor[batch.rows], compiled_rows) for tensor in inputs])
        parts.append({name: result[: batch.num_rows] for name, result in results.items()})
    first = parts[0]
    return first if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in first}
