"""`baremetal`, `benchmark` and `profile` of the older API: results, simulated latencies, and files that say so."""

from __future__ import annotations

import json

import numpy as np
import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.nki.legacy import (
    baremetal,
    benchmark,
    compiler as ncc,
    isa as nisa,
    jit,
    language as nl,
    profile,
    simulate_kernel,
)


def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) + nl.load(b))
    return out


A, B = np.ones((128, 64), np.float32), np.arange(128 * 64, dtype=np.float32).reshape(128, 64)


def test_baremetal_runs_and_saves(tmp_path):
    kernel = baremetal(save_neff_name=tmp_path / "file.neff", save_trace_name=tmp_path / "profile.ntff")(add)
    np.testing.assert_array_equal(kernel(A, B), A + B)
    np.testing.assert_array_equal(simulate_kernel(kernel, A, B), A + B)
    neff, trace = (json.loads((tmp_path / name).read_text()) for name in ("file.neff", "profile.ntff"))
    assert neff["simulated"] and [row["opcode"] for row in neff["instructions"]][:2] == ["dma_copy", "dma_copy"]
    assert trace["otherData"]["simulated"] and trace["traceEvents"]


def test_benchmark_has_simulated_latencies(capsys):
    bench = benchmark(add, warmup=2, iters=5)
    assert bench.benchmark_result is None
    bench(A, B)
    latency = bench.benchmark_result.nc_latency
    assert latency.is_simulated and 2 < latency.get_latency_percentile(50) < 100
    assert len({latency.get_latency_percentile(each) for each in (0, 1, 10, 25, 50, 90, 99, 100)}) == 1
    assert "Simulated" in capsys.readouterr().out
    with pytest.raises(ConfigError) as excinfo:
        latency.get_latency_percentile(42)
    assert excinfo.value.details["percentile"] == 42


def test_programs_of_a_grid_take_turns_on_their_core():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        row = nl.program_id(0)
        tile = nl.load(x[row])
        for _ in range(8):
            tile[...] = nl.exp(tile) * 0.1
        nl.store(out[row], tile)
        return out

    x = np.ones((4, 128, 512), np.float32)

    def latency_us(grid):
        bench = benchmark(jit(kernel))[grid]
        bench(x)
        return bench.benchmark_result.nc_latency.get_latency_percentile(50)

    on_one, on_two = latency_us(4), latency_us(nl.nc(2) * 2)
    assert 1.5 < on_one / on_two < 2.5


def test_profile_writes_a_folder(tmp_path):
    folder = tmp_path / "profiles"
    kernel = profile(working_directory=str(folder), save_neff_name="one.neff", num_execs=20, profile_nth=10)(add)
    np.testing.assert_array_equal(kernel(A, B), A + B)
    assert sorted(path.name for path in folder.glob("*.*")) == [
        "one.neff",
        "profile_exec_10.ntff",
        "profile_exec_20.ntff",
    ]
    reports = sorted((folder / "json_reports").iterdir())
    report, trace = (json.loads(path.read_text()) for path in (reports[0], folder / "profile_exec_10.ntff"))
    assert len(reports) == 2 and report["simulated"]
    spent_us = sum(event.get("dur", 0) for event in trace["traceEvents"])
    assert sum(report["busy_us"].values()) == pytest.approx(spent_us)
    with pytest.raises(ConfigError):
        kernel(A, B)
    np.testing.assert_array_equal(profile(working_directory=str(folder), overwrite=True)(add)(A, B), A + B)
    with pytest.raises(ConfigError):
        profile(working_directory="profiles")(add)


def test_modes_of_jit_are_these_functions(tmp_path):
    bench = jit(add, mode="benchmark", warmup=1)
    bench(A, B)
    assert bench.benchmark_result.nc_latency.get_latency_percentile(99) > 0
    assert jit(mode="baremetal")(add)(A, B).shape == A.shape
    with pytest.raises(ConfigError) as excinfo:
        benchmark(add, repeat=3)
    assert excinfo.value.details["options"] == ["repeat"]
    assert baremetal(add, additional_compile_opt="-O1")(A, B).shape == A.shape
    (tmp_path / "old").write_text("")
    with pytest.raises(ConfigError):
        baremetal(add, artifacts_dir=tmp_path)


def test_platform_target():
    def version(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.full(x.shape, int(nisa.get_nc_version()), x.dtype))
        assert nisa.get_nc_version() >= nisa.nc_version.gen2
        return out

    assert jit(version)(A)[0, 0] == 3 and jit(version, platform_target="trn1")(A)[0, 0] == 2


def test_tiles_placed_by_hand_may_be_left_to_the_compiler():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((nl.par_dim(128), 64), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=512 * 1024))
        tile[...] = nl.load(x)
        nl.store(out, tile)
        return out

    with pytest.raises(AssertionError) as excinfo:
        jit(kernel)(A)
    assert excinfo.value.details["rule"] == "address"
    np.testing.assert_array_equal(ncc.force_auto_alloc(kernel)(A), A)
    stacked = ncc.enable_stack_allocator(ncc.skip_middle_end_transformations(jit(add)))
    np.testing.assert_array_equal(stacked(A, B), A + B)
