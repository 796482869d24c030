"""Two cores of one launch: barriers, exchanges, and cores that wait forever."""

from __future__ import annotations

import numpy as np
import pytest

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl


def details(body, *args, cores=2):
    with pytest.raises(KernelError) as excinfo:
        jit(body)[cores](*args) if cores else jit(body)(*args)
    return excinfo.value.details


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((256, 16)).astype(np.float32)


def test_cores_exchange_tiles(x):
    def body(x):
        rank = nl.program_id(0)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for pipe in range(2):
            mine, theirs = nl.load(x[rank * 128 : rank * 128 + 128]), nl.ndarray((128, 16), x.dtype)
            nisa.sendrecv(mine, theirs, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=pipe)
        nisa.dma_copy(out[rank * 128 : rank * 128 + 128], theirs)
        return out

    result = jit(body)[2](x)
    np.testing.assert_array_equal(result, np.concatenate([x[128:], x[:128]]))


def test_cores_see_what_the_other_wrote_before_the_barrier(x):
    def body(x):
        rank = nl.program_id(0)
        shared = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        mine, other = (slice(place * 128, place * 128 + 128) for place in (rank, 1 - rank))
        nisa.dma_copy(shared[mine], nl.load(x[mine]))
        nisa.core_barrier(shared, (0, 1))
        nisa.dma_copy(out[mine], nl.load(shared[other]))
        return out

    np.testing.assert_array_equal(jit(body)[2](x), np.concatenate([x[128:], x[:128]]))


def test_core_that_waits_forever(x):
    def body(x):
        if nl.program_id(0) == 0:
            nisa.core_barrier(x, (0, 1))

    found = details(body, x)
    assert found["rule"] == "deadlock" and found["core"] == 0
    assert found["line"].startswith(__file__)


def test_error_of_one_core_ends_the_other(x):
    def body(x):
        if nl.program_id(0) == 1:
            nl.load(x)
        nisa.core_barrier(x, (0, 1))

    assert details(body, x)["rule"] == "partition"


def test_two_cores_are_needed(x):
    assert details(lambda x: nisa.core_barrier(x, (0, 1)), x, cores=0)["rule"] == "grid"
    assert details(lambda x: nisa.core_barrier(x, (0, 2)), x)["operand"] == "cores"


def test_exchange_through_gpsimd_has_a_limit(x):
    def body(x, columns):
        rank = nl.program_id(0)
        mine = nl.zeros((128, columns), nl.float32)
        nisa.sendrecv(mine, mine, 1 - rank, 1 - rank, 0, dma_engine=nisa.dma_engine.gpsimd_dma)
        nisa.dma_copy(x[:128], mine[:, :16])

    assert details(body, x, 257)["maximum"] == 1024
    jit(body)[2](x, 256)
    assert (x[:128] == 0).all()


@pytest.mark.parametrize(("target", "cores"), [("trn1", 2), ("trn2", 8), ("trn3", 3), ("trn2", (1, 2))])
def test_more_cores_than_a_logical_core_has(x, monkeypatch, target, cores):
    """As the guide to logical cores documents: trn1 has one core in each, trn2 and trn3 at most two."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    found = details(lambda x: x, x, cores=cores)
    assert found["rule"] == "grid" and found["target"] == target
