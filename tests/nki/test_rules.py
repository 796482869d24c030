"""A kernel that breaks a rule of the core is refused, with its line, the rule and the values."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from optimum_neuron.errors import ConfigError, KernelError
from optimum_neuron.nki import UninitializedReadWarning, isa as nisa, jit, language as nl, launch


def refused(body, *args):
    """The details of the error of a kernel."""
    with pytest.raises(KernelError) as excinfo:
        jit(body)(*args)
    return excinfo.value.details


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    made = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    nisa.memset(made, 1)
    return made


BROKEN = {
    "bounds": lambda: tile(128, 8)[:, 4:9],
    "partition": lambda: nl.ndarray((256, 4), dtype=nl.float32),
    "rank": lambda: nl.ndarray((128,), dtype=nl.float32),
    "capacity": lambda: nl.ndarray((128, 5000), dtype=nl.float32, buffer=nl.psum),
    "buffer": lambda: nisa.nc_matmul(tile(128, 8), tile(128, 8), tile(128, 8)),
    "buffer of a predicate": lambda: nisa.tensor_copy_predicated(
        tile(8, 4), tile(8, 4, buffer=nl.psum), tile(8, 4, dtype=nl.uint8, buffer=nl.psum)
    ),
    "psum_bank": lambda: nisa.nc_matmul(
        nl.ndarray((128, 600), nl.float32, buffer=nl.psum)[:, 300:600], tile(128, 128), tile(128, 300)
    ),
    "shape": lambda: nisa.tensor_tensor(tile(128, 8), tile(128, 8), tile(128, 9), nl.add),
    "partition_step": lambda: nisa.tensor_copy(tile(64, 4), tile(128, 4)[0:128:2]),
    "start_partition": lambda: nisa.tensor_copy(tile(16, 4), tile(128, 4)[16:32]),
    "operator": lambda: nisa.activation(tile(128, 4), nl.maximum, tile(128, 4)),
    "engine": lambda: nisa.tensor_tensor(tile(8, 4), tile(8, 4), tile(8, 4), nl.add, engine=nisa.engine.scalar),
    "axis": lambda: nisa.tensor_reduce(tile(128, 1), nl.add, tile(128, 4, 2), axis=1),
    "tile_size": lambda: nisa.nc_matmul(
        nl.ndarray((128, 512), nl.float32, buffer=nl.psum), tile(128, 129), tile(128, 512)
    ),
    "dtype": lambda: nl.ndarray((128, 4), dtype=np.float64),
    "generation": lambda: nisa.exponential(tile(128, 4), tile(128, 4)),
    "assignment": lambda: tile(128, 4).__setitem__(0, tile(1, 4)),
    "result": lambda: tile(4, 4),
    "address": lambda: nl.ndarray((128, 4), nl.float32, address=(0, 1 << 20)),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rule_is_refused(rule, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen3")
    details = refused(BROKEN[rule])
    assert details["rule"] == rule.partition(" ")[0]
    if rule != "result" and rule != "dtype":
        file, _, number = details["line"].rpartition(":")
        assert file == __file__
        assert Path(file).read_text().splitlines()[int(number) - 1].strip()


def test_kernel_without_a_result_is_noted():
    with pytest.warns(UserWarning, match="returned nothing"):
        assert jit(lambda: tile(4, 4) and None)() is None


def test_error_is_an_assertion_with_the_instruction_and_the_size():
    def body(x):
        big = x.reshape((256, 4))
        nisa.tensor_tensor(dst=big, data1=big, data2=big, op=nl.add)

    with pytest.raises(AssertionError) as excinfo:
        jit(body)(torch.ones(256, 4))
    assert excinfo.value.details["rule"] == "buffer"


def test_dtype_of_another_generation_is_refused(monkeypatch):
    def body():
        return nl.ndarray((128, 4), dtype=nl.float8_e4m3fn, buffer=nl.shared_hbm)

    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert refused(body)["dtype"] == "float8_e4m3fn"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert jit(lambda x: (nl.ndarray((128, 4), dtype=nl.float8_e4m3fn), x)[1])(torch.ones(1)) == 1


def test_read_of_memory_that_nothing_wrote():
    def body():
        out = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        part = nl.ndarray((128, 4), dtype=nl.float32)
        nisa.memset(part[:, :3], 1.0)
        nisa.dma_copy(out, part)
        return out

    with pytest.warns(UninitializedReadWarning, match="128 of the 512 elements"):
        result = jit(body)()
    assert np.isnan(result[:, 3]).all() and (result[:, :3] == 1).all()
    with pytest.raises(KernelError) as excinfo:
        launch(jit(body), (), {}, strict=True)
    assert excinfo.value.details["rule"] == "uninitialized"
    assert excinfo.value.details["missing"] == 128


def test_integers_that_nothing_wrote_are_4():
    def body():
        out = nl.ndarray((2, 2), dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, nl.ndarray((2, 2), dtype=nl.int32))
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UninitializedReadWarning)
        assert (jit(body)() == 4).all()


def test_options_of_jit_are_checked():
    with pytest.raises(ConfigError) as excinfo:
        jit(precise=True)
    assert excinfo.value.details["options"] == ["precise"]
    assert jit(mode="simulation", debug_kernel=True, experimental_flags="no-checks")(len).function is len


def test_kernel_has_the_signature_of_its_function_and_a_target_of_its_own():
    @jit(platform_target="trn1", show_compiler_tb=True)
    def kernel(x, scale=2.0):
        assert nisa.get_nc_version() < nisa.nc_version.gen3
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    assert str(inspect.signature(kernel)) == "(x, scale=2.0)"
    assert kernel(np.ones((4, 4), np.float32)).sum() == 16 and nisa.get_nc_version() >= nisa.nc_version.gen4


def test_functions_outside_of_a_kernel_are_refused():
    with pytest.raises(KernelError) as excinfo:
        nl.ndarray((128, 4), dtype=nl.float32)
    assert excinfo.value.details["rule"] == "outside"


def test_result_on_the_chip_is_refused():
    assert refused(lambda: tile(128, 4))["rule"] == "result"


def test_result_that_was_not_all_written():
    def body():
        return nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.shared_hbm)

    with pytest.warns(UninitializedReadWarning, match="4 of the 4 elements"):
        assert np.isnan(jit(body)()).all()


def test_recorded_stream_is_data():
    def body(x):
        out, loaded = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm), nl.load(x)
        nisa.activation(loaded, nl.exp, loaded)
        nl.store(out, loaded)
        return out

    result, stream = launch(jit(body), (torch.zeros(128, 64),), {}, record=True)
    assert (result == 1).all()
    assert [(row.opcode, row.engine) for row in stream] == [
        ("dma_copy", "dma"),
        ("activation", "scalar"),
        ("dma_copy", "dma"),
    ]
    assert stream[1].cycles == 64
    assert stream[1].reads[0].shape == (128, 64) and stream[1].line.startswith(__file__)
    assert stream[0].writes[0].storage == stream[1].reads[0].storage
