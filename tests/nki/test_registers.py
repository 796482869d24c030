"""Registers, loops of the device, and the functions of the language that are several instructions."""

from __future__ import annotations

import numpy as np
import pytest

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def rule_of(body, *args):
    with pytest.raises(KernelError) as excinfo:
        jit(body)(*args)
    return excinfo.value.details["rule"]


def test_loop_with_a_bound_from_memory():
    def body(count, data):
        bound, total = nisa.register_alloc(), nl.zeros((4, 1), nl.float32)
        nisa.register_load(bound, count)

        def add(column):
            nisa.tensor_tensor(total, total, nl.load(data[:, nl.ds(column, 1)]), nl.add)

        nl.fori_loop(1, bound, add, step=2)
        return stored(total)

    data = np.arange(40, dtype=np.float32).reshape(4, 10)
    result = jit(body)(np.array([6], np.int32), data)
    np.testing.assert_array_equal(result[:, 0], data[:, 1:6:2].sum(1))


def test_loop_while_a_register_is_not_zero():
    def body(count):
        condition, total = nl.load(count), nl.zeros((1, 1), nl.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, condition)

        def step(current):
            nisa.tensor_scalar(total, total, nl.add, 2)
            nisa.tensor_scalar(condition, condition, nl.add, -1)
            nisa.register_load(current, condition)
            return current

        nl.while_loop(register, step)
        return stored(total)

    assert jit(body)(np.array([[5]], np.int32)) == 10
    assert jit(body)(np.array([[0]], np.int32)) == 0


def test_registers_are_copied_and_stored():
    def body():
        first, second, tile = nisa.register_alloc(7), nisa.register_alloc(), nl.ndarray((1, 1), nl.int32)
        nisa.register_move(second, first)
        nisa.register_move(first, 1)
        with nl.no_reorder():
            nisa.register_store(tile, second)
        assert list(nl.dynamic_range(first, second, 3)) == [1, 4]
        return stored(tile)

    assert jit(body)() == 7


def test_refused_registers():
    assert rule_of(lambda: bool(nisa.register_alloc())) == "uninitialized"
    assert rule_of(lambda: nisa.register_load(nisa.register_alloc(), nl.zeros((1, 2), nl.int32))) == "shape"
    assert rule_of(lambda: nisa.register_move(3, 4)) == "operand"
    assert rule_of(lambda: nl.fori_loop(0, 2, lambda number: nisa.register_move(number, 1))) == "operand"
    assert rule_of(lambda: nl.dynamic_range(0, 4, 0)) == "operand"
    assert rule_of(lambda: nl.while_loop(nisa.register_alloc(1), lambda register: None)) == "operand"


def test_sub_version(monkeypatch):
    versions = []
    for target in ("trn2", "trn3"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        versions.append(jit(nisa.get_nc_sub_version)())
    assert versions == [0, 1]


def test_rms_norm():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 128, 64)).astype(np.float32)
    result = jit(lambda x, w: stored(nl.rms_norm(nl.load(x), nl.load(w), axis=1, n=64, epsilon=0.01)))(x, w)
    np.testing.assert_allclose(result, x / np.sqrt((x * x).mean(1, keepdims=True) + 0.01) * w, rtol=1e-5)


def test_all_and_gather():
    data = np.array([[1, 2, 3], [4, 0, 5]], np.float32)
    assert jit(lambda x: stored(nl.all(nl.load(x), axis=1)))(data).tolist() == [[1], [0]]
    indices = np.array([[2, 0], [1, 1]], np.uint32)
    result = jit(lambda x, i: stored(nl.gather_flattened(nl.load(x), nl.load(i), dtype=nl.int32)))(data, indices)
    assert result.tolist() == [[3, 1], [0, 0]]
    assert rule_of(lambda x, i: nl.gather_flattened(nl.load(x), nl.load(i), axis=1), data, indices) == "axis"


def test_constants_are_in_hbm_and_identities_in_sbuf(tmp_path):
    np.save(tmp_path / "constant.npy", np.arange(6, dtype=np.float16).reshape(2, 3))

    def body():
        identity = nl.shared_identity_matrix(3)
        assert identity.buffer == nl.sbuf
        return nl.shared_constant(str(tmp_path / "constant.npy")), stored(identity)

    constant, identity = jit(body)()
    assert constant.tolist() == [[0, 1, 2], [3, 4, 5]] and constant.dtype == np.float16 and identity.dtype == np.uint8
    np.testing.assert_array_equal(identity, np.eye(3))
