"""Which loops are folded: alike iterations, nested or not; loops whose iterations differ or run in turns stay."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.nki import isa as nisa, jit, language as nl, streams

X = torch.ones(128, 64)


def nested(tile):
    for row in nl.affine_range(4):
        for column in nl.affine_range(8):
            nisa.memset(tile[row * 32 : row * 32 + 32, nl.ds(column * 8, 8)], row + column)


def carried(tile):
    last = tile
    for _ in nl.sequential_range(4):
        last = nl.copy(last)
    nisa.tensor_copy(tile, last)


def first_differs(tile):
    for number in nl.sequential_range(5):
        nisa.memset(tile if number == 0 else tile[:, :32], number)


def ends_early(tile):
    for number in nl.sequential_range(8):
        if number == 3:
            break
        nisa.memset(tile, number)


def in_turns(tile):
    for one, other in zip(nl.affine_range(4), nl.affine_range(4), strict=True):
        nisa.memset(tile, one + other)


def kept(tile):
    tiles = [nl.copy(tile) for _ in nl.affine_range(3)]
    for one in tiles:
        nisa.tensor_copy(tile, one)


def triangle(tile):
    for row in nl.affine_range(4):
        for column in nl.affine_range(row + 1):
            nisa.memset(tile[:, nl.ds(column * 8, 8)], 1.0)


def steps(tile):
    for number in nl.affine_range(6, 0, -2):
        nisa.memset(tile[:, nl.ds(number * 8, 8)], number)


@pytest.mark.parametrize(
    ("body", "stored", "executed"),
    [
        (nested, 1, 32),
        (carried, 5, 5),
        (first_differs, 2, 5),
        (ends_early, 1, 3),
        (in_turns, 1, 4),
        (kept, 6, 6),
        (triangle, 4, 10),
        (steps, 1, 3),
    ],
)
def test_loops(body, stored, executed):
    @jit
    def kernel(x):
        tile = nl.load(x)
        body(tile)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    stream = streams.trace(kernel, (X,), {}).stream
    # Beside the load and the store.
    assert (stream.num_steps - 2, stream.num_instructions - 2) == (stored, executed)
    assert torch.equal(streams.run(stream, [X])[0], kernel(X))
