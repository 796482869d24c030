"""Access patterns and views by another dtype give what NumPy's strides and views give."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import UninitializedReadWarning, isa as nisa, jit, language as nl, streams

X = np.random.default_rng(0).standard_normal((128, 32)).astype(np.float32)
TABLE = np.arange(100 * 48, dtype=np.int32).reshape(100, 48)
HALVES = X.view(np.uint16)


def store(tile, dtype=None):
    out = nl.ndarray(tile.shape, dtype or tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def in_elements_of_the_dtype(x):
    """A float32 has two elements of uint16, so a partition has 64 of them."""
    return store(nl.load(x).ap([[64, 128], [1, 16]], offset=2, dtype=nl.uint16))


def behind_the_begin_of_a_view(x):
    return store(nl.load(x)[:, 8:].ap([[32, 128], [1, 4]], offset=4))


def copied_within_partitions(x):
    """Engines reach a view by another dtype at any partition that they reach."""
    tile, out = nl.load(x), nl.ndarray((32, 16), nl.uint16)
    nisa.tensor_copy(out, tile.view(nl.uint16)[32:64, 3:19])
    return store(out)


def by_an_index_in_a_reshaped_view(table, index):
    """The index is of a dimension of the view, not of the tensor."""
    heads, at = table.reshape((100, 6, 8)), nl.load(index)
    return store(heads.ap([[48, 100], [1, 8]], scalar_offset=at, indirect_dim=1))


def rows_as_another_dtype(table, index):
    picked = nl.ndarray((4, 96), nl.uint16)
    pattern = [[96, 4], [1, 96]]
    nisa.dma_copy(picked, table.ap(pattern, vector_offset=nl.load(index), indirect_dim=0, dtype=nl.uint16))
    return store(picked)


CASES = {
    "behind_the_begin": (behind_the_begin_of_a_view, (X,), X[:, 12:16]),
    "by_an_index": (by_an_index_in_a_reshaped_view, (TABLE, np.array([[3]], np.int32)), TABLE[:, 24:32]),
    "copied": (copied_within_partitions, (X,), HALVES[32:64, 3:19]),
    "in_elements": (in_elements_of_the_dtype, (X,), HALVES[:, 2:18]),
    "rows": (rows_as_another_dtype, (TABLE, np.array([[7], [99], [0], [7]], np.int32)), TABLE[[7, 99, 0, 7]]),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_pattern_is_that_of_numpy(name):
    body, args, expected = CASES[name]
    np.testing.assert_array_equal(jit(body)(*args), expected.view(jit(body)(*args).dtype))


@pytest.mark.parametrize("name", sorted(CASES))
def test_pattern_is_replayed(name):
    body, args, expected = CASES[name]
    tensors = [torch.from_numpy(array) for array in args]
    stream = streams.trace(jit(body), tensors, {}).stream
    (result,) = streams.run(streams.decode(streams.encode(stream), stream.constants), tensors)
    np.testing.assert_array_equal(result.numpy(), expected.view(result.numpy().dtype))


def test_both_dtypes_of_a_memory_know_what_was_written():
    def body(x):
        tile = nl.ndarray((128, 32), nl.float32)
        halves = tile.view(nl.uint16)
        nisa.memset(halves[:, :32], 0)
        nisa.tensor_copy(tile[:, 16:], nl.load(x)[:, 16:])
        store(halves)
        return store(tile)

    with warnings.catch_warnings():
        warnings.simplefilter("error", UninitializedReadWarning)
        np.testing.assert_array_equal(jit(body)(X), np.where(np.arange(32) < 16, 0, X))
    with pytest.warns(UninitializedReadWarning):
        jit(lambda: store(nl.ndarray((4, 4), nl.float32).view(nl.uint16)))()


def test_one_element_that_is_written_many_times_has_the_last():
    def body(x):
        last, total = nl.ndarray((128, 1), nl.float32), nl.ndarray((128, 1), nl.float32)
        nisa.activation_reduce(last.broadcast(1, 32), nl.copy, nl.load(x), nl.add, total)
        return store(last), store(total)

    last, total = jit(body)(X)
    np.testing.assert_array_equal(last[:, 0], X[:, -1])
    np.testing.assert_allclose(total[:, 0], X.sum(1), rtol=1e-5)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (lambda x: nl.load(x)[:, ::2].view(nl.uint16), "strides"),
        (lambda x: nl.load(x).view(nl.uint16)[:, 1:].ap([[32, 128], [1, 8]], dtype=nl.float32), "strides"),
        (lambda x: store(nl.load(x).ap([[64, 128], [1, 65]], dtype=nl.uint16)), "bounds"),
        (lambda x: store(x.ap([[32, 128], [1, 33]])), "bounds"),
        (lambda x: x.ap([[32, 128], [1, 33]]), "bounds"),
        (lambda x: x.ap([[32, 128], [1, 33]])[:64], "bounds"),
        (lambda x: nl.load(x).ap([[32, 128], [1, 32]], -1), "bounds"),
        (lambda x: nl.load(x).ap([[64, 64], [1, 32]]), "partition_step"),
        (lambda x: nl.load(x).ap([[1, 128], [1, 32]]), "partition_step"),
    ],
)
def test_view_of_parts_of_elements_is_refused(body, rule):
    with pytest.raises(KernelError) as excinfo:
        jit(body)(X)
    assert excinfo.value.details["rule"] == rule


def test_view_that_ends_behind_its_tensor_may_be_made_if_nothing_uses_it():
    def body(x):
        tile, out = nl.load(x), nl.ndarray((128, 32), x.dtype, buffer=nl.shared_hbm)
        for first in range(0, 64, 16):
            part = tile.ap([[32, 128], [1, 16]], first)
            if first < 32:
                nisa.dma_copy(out[:, first : first + 16], part)
        return out

    np.testing.assert_array_equal(jit(body)(X), X)
    (result,) = streams.run(streams.trace(jit(body), [torch.from_numpy(X)], {}).stream, [torch.from_numpy(X)])
    np.testing.assert_array_equal(result.numpy(), X)


def test_smallest_float_of_ten_digits_is_a_float32():
    def body(x):
        chosen, filled = nl.ndarray((128, 32), nl.float32), nl.full((128, 1), -3.4028235e38, nl.float32)
        nisa.affine_select(chosen, [[-1, 32]], 1, nl.load(x), -3.4028235e38, nl.greater_equal)
        return store(chosen), store(filled)

    chosen, filled = jit(body)(X)
    lowest = np.finfo(np.float32).min
    np.testing.assert_array_equal(chosen, np.where(np.tri(128, 32, dtype=bool), X, lowest))
    assert (filled == lowest).all()
