"""Rows: padded with the first one, split over batches and replicas, cut back."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.engine import run_rows
from optimum_neuron.engine.rows import batches, pad_rows


@pytest.mark.parametrize(
    ("num_rows", "buckets", "num_replicas", "expected"),
    [
        (3, [4], 1, [(0, 3, 4)]),
        (9, [1, 4], 1, [(0, 4, 4), (4, 4, 4), (8, 1, 1)]),
        (6, [1, 4], 2, [(0, 4, 4), (4, 2, 4)]),
        (8, [2, 4], 4, [(0, 2, 2), (2, 2, 2), (4, 2, 2), (6, 2, 2)]),
    ],
)
def test_batches(num_rows, buckets, num_replicas, expected):
    actual = [(b.begin, b.num_rows, b.compiled_rows) for b in batches(num_rows, buckets, num_replicas=num_replicas)]
    assert actual == expected


def test_padding_repeats_first_row():
    x = torch.tensor([[1, 2], [3, 4]])
    assert pad_rows(x, 3).tolist() == [[1, 2], [3, 4], [1, 2]]
    assert pad_rows(x, 4, dim=1).tolist() == [[1, 2, 1, 1], [3, 4, 3, 3]]
    assert pad_rows(x, 2) is x


@pytest.mark.parametrize("num_rows", [1, 2, 3, 5, 7])
def test_any_number_of_rows_runs(num_rows):
    x, sizes, made = torch.arange(num_rows * 2.0).reshape(num_rows, 2), [], []

    def run(part):
        sizes.append(part[0].shape[0])
        made.append(part[0] * 2)
        return {"double": made[-1], "sum": part[0].sum(1)}

    results = run_rows(run, [x], compiled_rows=3)
    assert torch.equal(results["double"], x * 2) and torch.equal(results["sum"], x.sum(1))
    assert set(sizes) == {3}
    assert (results["double"].data_ptr() == made[0].data_ptr()) == (len(made) == 1), "the only part is not copied"
