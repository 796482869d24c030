"""Core numbers, typed again from the documents, and their arithmetic."""

from __future__ import annotations

import pytest

from optimum_neuron.hardware import CORES


@pytest.mark.parametrize(
    ("core", "bfloat16", "float32", "clock_ghz"),
    [("NeuronCore-v2", 92, 23, 2.8), ("NeuronCore-v3", 79, 20, 2.4), ("NeuronCore-v4", 79, 20, 2.4)],
)
def test_tensor_engine(core, bfloat16, float32, clock_ghz):
    spec = CORES[core]
    assert (spec.tensor.tflops["bfloat16"], spec.tensor.tflops["float32"]) == (bfloat16, float32)
    assert spec.tensor.clock_ghz == clock_ghz
    rows, columns = spec.tensor_array
    by_clock = 2 * rows * columns * clock_ghz / 1000  # a multiplication and an addition per cell and cycle
    assert (bfloat16, 4 * float32) == pytest.approx((by_clock, by_clock), rel=0.02)


def test_fp8_rates():
    assert CORES["NeuronCore-v2"].tensor.tflops["float8_e4m3"] == CORES["NeuronCore-v2"].tensor.tflops["bfloat16"]
    assert CORES["NeuronCore-v3"].tensor.tflops["float8_e4m3"] == 158
    assert CORES["NeuronCore-v3"].tensor.tflops["float8_e3m4"] == 79
    assert CORES["NeuronCore-v4"].tensor.tflops["mxfp8"] == 315
    assert "mxfp8" not in CORES["NeuronCore-v3"].tensor.tflops


@pytest.mark.parametrize(
    ("core", "sbuf_mib", "partition_kib", "dma_gb_per_s"),
    [("NeuronCore-v2", 24, 192, 272), ("NeuronCore-v3", 28, 224, 368), ("NeuronCore-v4", 32, 256, 528)],
)
def test_memories_and_dma(core, sbuf_mib, partition_kib, dma_gb_per_s):
    spec = CORES[core]
    assert spec.sbuf_bytes == sbuf_mib * 2**20 == 128 * partition_kib * 2**10
    assert spec.psum_bytes == 2 * 2**20
    assert spec.psum_bank_bytes == 2 * 2**10 == 512 * 4
    assert spec.dma_bytes_per_s == dma_gb_per_s * 1e9


def test_only_second_generation_has_port_conflicts():
    assert CORES["NeuronCore-v2"].port_conflicts == (("vector", "gpsimd", "sbuf"), ("vector", "scalar", "psum"))
    assert CORES["NeuronCore-v3"].port_conflicts == CORES["NeuronCore-v4"].port_conflicts == ()


def test_first_generation_is_mostly_unknown():
    core = CORES["NeuronCore-v1"]
    assert core.gpsimd is None
    assert (core.vector.flop_per_cycle, core.scalar.flop_per_cycle) == (256, 512)
    assert core.sbuf_bytes is core.dma_bytes_per_s is core.psum_bank_bytes is core.tensor.clock_ghz is None
    assert core.source("sbuf_bytes") == "not published"
    assert core.rounding == ("rne",)


def test_generations_are_ordered_and_cores_hashable():
    assert [core.generation for core in CORES.values()] == [1, 2, 3, 4]
    assert len(set(CORES.values())) == 4


def test_dtypes_of_rates_are_dtypes_of_core():
    for core in CORES.values():
        for engine in (core.tensor, core.vector, core.scalar):
            assert set(engine.tflops) | set(engine.sparse_tflops) <= set(core.dtypes)
