"""Random numbers: their bits, states and statistics, and dropout."""

from __future__ import annotations

import numpy as np
import pytest

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl


def run(body, *args):
    """Run a kernel that returns a tile."""

    def kernel(*arrays):
        tile = body(*arrays)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    return jit(kernel)(*args)


def xorwow(state, count):
    """The published algorithm, for one generator, in integers of Python."""
    x, y, z, w, v, d = state
    drawn = []
    for _ in range(count):
        mixed = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ mixed ^ (mixed << 1)) % 2**32
        d = (d + 362437) % 2**32
        drawn.append((v + d) % 2**32)
    return drawn


@pytest.mark.parametrize(("engine", "words"), [(nisa.engine.gpsimd, 6), (nisa.engine.vector, 24)])
def test_bits_follow_from_the_state(engine, words):
    states = np.random.default_rng(0).integers(0, 2**32, (4, words)).astype(np.uint32)

    def body(states):
        nisa.rand_set_state(nl.load(states), engine=engine)
        bits = nl.ndarray((4, 20), nl.uint32)
        nisa.rng(bits, engine=engine)
        return bits

    result = run(body, states)
    for lane in range(4):
        drawn = [xorwow(map(int, state), 20) for state in states[lane].reshape(-1, 6)]
        assert result[lane].tolist() == np.array(drawn).T.reshape(-1)[:20].tolist()


def test_state_that_was_read_continues():
    def body():
        state, first, second = (nl.ndarray((128, n), nl.uint32) for n in (6, 5, 5))
        nisa.rand_get_state(state)
        nisa.rng(first, engine=nisa.engine.gpsimd)
        nisa.rand_set_state(state)
        nisa.rng(second, engine=nisa.engine.gpsimd)
        return nl.equal(first, second)

    assert run(body).all()


def test_seed_repeats_numbers():
    def body():
        seed = nl.full((1, 1), 42, dtype=nl.int32)
        tiles = []
        for _ in range(2):
            nl.random_seed(seed)
            tiles.append(nl.rand((128, 64), dtype=nl.float32))
        nisa.tensor_tensor(tiles[1], tiles[0], tiles[1], nl.subtract)
        assert float(tiles[1].read().abs().max()) == 0
        return tiles[0]

    values = run(body)
    assert values.min() >= 0 and values.max() < 1
    assert abs(values.mean() - 0.5) < 0.02 and abs(values.std() - 12**-0.5) < 0.02
    assert len(np.unique(values[:, 0])) == 128


def test_narrow_bits_have_signs():
    def body():
        bits = nl.ndarray((128, 64), nl.int8)
        nisa.rng(bits)
        return bits

    values = run(body)
    assert values.min() < -100 and values.max() > 100


def test_uniform_numbers_between_vectors():
    def body(low):
        tile = nl.ndarray((128, 256), nl.float32)
        nisa.rand2(tile, nl.load(low), 10.0)
        return tile

    low = np.arange(128, dtype=np.float32).reshape(128, 1) / 16
    values = run(body, low)
    assert (values >= low).all() and (values <= 10).all()
    assert np.abs(values.mean(1, keepdims=True) - (low + 10) / 2).max() < 1


def test_dropout():
    def body(x, rate):
        return nl.dropout(nl.load(x), nl.load(rate))

    rate = np.linspace(0, 1, 128, dtype=np.float32).reshape(128, 1)
    values = run(body, np.full((128, 1000), 3, np.float32), rate)
    assert set(np.unique(values)) == {0, 3}
    assert np.abs((values == 0).mean(1) - rate[:, 0]).max() < 0.08
    assert (values[0] == 3).all() and (values[127] == 0).all()


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("dtype", lambda: nisa.rng(nl.zeros((2, 2), nl.float32))),
        ("operand", lambda: nisa.rand2(nl.zeros((2, 2), nl.float32), 1.0, 0.0)),
        ("operand", lambda: nl.dropout(nl.zeros((2, 2), nl.float32), 1.5)),
        ("shape", lambda: nisa.set_rng_seed(nl.zeros((2, 1), nl.int32))),
        ("shape", lambda: nisa.rand_get_state(nl.zeros((2, 24), nl.uint32))),
        ("dtype", lambda: nisa.rand_set_state(nl.zeros((2, 6), nl.int32))),
    ],
)
def test_refused(rule, body):
    with pytest.raises(KernelError) as excinfo:
        jit(body)()
    assert excinfo.value.details["rule"] == rule


def test_engine_of_a_newer_generation(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(KernelError) as excinfo:
        jit(lambda: nisa.rand_get_state(nl.zeros((2, 24), nl.uint32), engine=nisa.engine.vector))()
    assert excinfo.value.details["rule"] == "generation"
