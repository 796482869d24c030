"""Instructions that reduce while they compute, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from optimum_neuron.errors import KernelError
from optimum_neuron.nki import isa as nisa, jit, language as nl

REDUCTIONS = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_tensor_scalar_and_its_reduction(name):
    x = np.random.default_rng(0).standard_normal((128, 24)).astype(np.float32)

    def body(x):
        tile, total = nl.load(x), nl.ndarray((128, 1), nl.float32)
        nisa.tensor_scalar_reduce(tile, tile, nl.subtract, 2.0, getattr(nl, name), total, reverse0=True)
        outs = [nl.ndarray(part.shape, part.dtype, buffer=nl.shared_hbm) for part in (tile, total)]
        nl.store(outs[0], tile)
        nl.store(outs[1], total)
        return tuple(outs)

    values, total = jit(body)(x)
    np.testing.assert_array_equal(values, 2 - x)
    np.testing.assert_allclose(total, REDUCTIONS[name](2 - x, axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("command", "initial"), [(nisa.reduce_cmd.load_reduce, None), (nisa.reduce_cmd.reset_reduce, 1.0)]
)
def test_initial_value_of_a_reduction_belongs_to_one_command(command, initial):
    def body(x):
        tile = nl.load(x)
        nisa.tensor_scalar_reduce(
            tile, tile, nl.add, 2.0, nl.add, nl.ndarray((128, 1), nl.float32), reduce_cmd=command, reduce_init=initial
        )

    with pytest.raises(KernelError) as excinfo:
        jit(body)(np.ones((128, 4), np.float32))
    assert excinfo.value.details["rule"] == "operand"


def test_accumulators_of_other_partitions_stay():
    """Each partition has its own accumulator: a reduction of one row resets one, and an idle instruction none."""
    x = np.random.default_rng(0).standard_normal((128, 24)).astype(np.float32)
    commands = nisa.reduce_cmd

    def body(x):
        tile, total = nl.load(x), nl.ndarray((128, 1), nl.float32)
        reduction = {"operand0": 0.0, "reduce_op": nl.add}
        for rows, command in ((128, commands.reset_reduce), (1, commands.reset_reduce), (32, commands.idle)):
            part = tile[:rows]
            nisa.tensor_scalar_reduce(part, part, nl.add, **reduction, reduce_cmd=command)
        nisa.tensor_scalar_reduce(tile, tile, nl.add, **reduction, reduce_res=total, reduce_cmd=commands.reduce)
        out = nl.ndarray(total.shape, total.dtype, buffer=nl.shared_hbm)
        nl.store(out, total)
        return out

    np.testing.assert_allclose(jit(body)(x), 2 * x.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-5)
