"""Every kind of bad input is refused with the kernel's line, the rule, and what to do."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from optimum_neuron.errors import KernelError, UnknownKeywordError
from optimum_neuron.nki import UninitializedReadWarning, analyze, isa as nisa, jit, language as nl, launch


def store(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def slice_out_of_bounds(x):
    tile = nl.load(x)
    return store(tile[:, 60:70])  # here


def pattern_out_of_bounds(x):
    tile = nl.load(x)
    return store(tile.ap([[64, 128], [1, 65]]))  # here


def misaligned_partitions(x):
    tile = nl.load(x)
    nisa.activation(tile[16:48], nl.exp, tile[16:48])  # here
    return store(tile)


def misplaced_bytes(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf, address=(0, 1 << 20))  # here
    return store(tile)


def wrong_buffer(x):
    tile, total = nl.load(x), nl.ndarray((64, 64), nl.float32, buffer=nl.sbuf)
    nisa.nc_matmul(total, tile, tile)  # here
    return store(total)


def psum_for_gpsimd(x):
    total = nl.ndarray((128, 64), nl.int32, buffer=nl.psum)
    nisa.iota(total, [[1, 64]], 0)  # here
    return store(nl.copy(total))


def too_many_partitions(x):
    tile = nl.ndarray((256, 64), nl.float32)  # here
    return store(tile)


def over_a_bank(x):
    tile, total = nl.load(x), nl.ndarray((64, 1000), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(total[:, 480:544], tile, tile)  # here
    return store(nl.copy(total[:, :64]))


def newer_dtype(x):
    return store(nl.copy(nl.load(x), nl.float8_e4m3fn_x4))  # here


def newer_instruction(x):
    tile = nl.load(x)
    nisa.exponential(tile, tile)  # here
    return store(tile)


def returns_nothing(x):  # here
    nl.load(x)


def returns_tile(x):
    tile = nl.load(x)  # here
    return tile


def recursive(n):
    return n and recursive(n - 1)  # here


def calls_itself(x):
    recursive(3)
    return store(nl.load(x))


def branches_on_data(x):
    tile = nl.load(x)
    if tile:  # here
        nisa.memset(tile, 0.0)
    return store(tile)


def loops_on_data(x):
    for _ in range(nisa.register_alloc(2)):  # here
        pass
    return store(nl.load(x))


REFUSED = {
    slice_out_of_bounds: "bounds",
    pattern_out_of_bounds: "bounds",
    misaligned_partitions: "start_partition",
    misplaced_bytes: "address",
    wrong_buffer: "buffer",
    psum_for_gpsimd: "buffer",
    too_many_partitions: "partition",
    over_a_bank: "psum_bank",
    newer_dtype: "dtype",
    newer_instruction: "generation",
    returns_nothing: "result",
    returns_tile: "result",
    calls_itself: "recursion",
    branches_on_data: "branch",
    loops_on_data: "loop",
}


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


@pytest.fixture
def x():
    return torch.randn(128, 64, generator=torch.Generator().manual_seed(0))


def source_of(line):
    file, _, number = line.rpartition(":")
    assert file == __file__
    return Path(file).read_text().splitlines()[int(number) - 1].strip()


@pytest.mark.parametrize("kernel", REFUSED, ids=lambda kernel: kernel.__name__)
def test_line_rule_and_fix(kernel, x):
    with pytest.raises(KernelError) as caught:
        jit(kernel, platform_rules=True)(x)
    error = caught.value
    assert error.details["rule"] == REFUSED[kernel] and error.hint
    source = source_of(error.details["line"])
    assert source.endswith("# here") and source in str(error)


def misspells_a_keyword(x):
    nisa.tensor_copy(tile := nl.load(x), scr=tile)  # here


def misspells_a_keyword_of_two_instructions(x):
    nisa.activation_reduce(tile := nl.load(x), nl.exp, tile, nl.add, reduce_ress=tile)  # here


@pytest.mark.parametrize(
    ("kernel", "keyword", "meant"),
    [
        (misspells_a_keyword, "scr", "src"),
        (misspells_a_keyword_of_two_instructions, "reduce_ress", "reduce_res"),
        (lambda x: nisa.dma_copy(x, x, trigger=nisa.engine.sync), "trigger", None),  # here, the name of its field
    ],
)
def test_an_unknown_keyword_is_an_error_of_types_too(kernel, keyword, meant, x):
    with pytest.raises(TypeError) as caught:
        jit(kernel)(x)
    error = caught.value
    assert isinstance(error, UnknownKeywordError) and error.details["keyword"] == keyword
    assert (meant is None or f"'{meant}'" in str(error)) and "# here" in source_of(error.details["line"])


def uninitialized(x):
    tile = nl.ndarray((128, 64), nl.float32)
    return store(tile)


def test_reads_of_what_nothing_wrote(x):
    with pytest.warns(UninitializedReadWarning, match="Write them first"):
        jit(uninitialized)(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (read,) = analyze(uninitialized, x).unwritten
    assert source_of(read.line) == "nisa.dma_copy(out, tile)" and read.num_elements == 128 * 64
    with pytest.raises(KernelError) as caught:
        launch(jit(uninitialized), (x,), {}, strict=True)
    assert caught.value.details["rule"] == "uninitialized" and caught.value.hint


def races(x):
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, x)
    return out


def test_a_race_has_both_lines_and_the_fix(x):
    (race,) = analyze(jit(races)[2], x).races
    assert source_of(race.first_line) == source_of(race.second_line) == "nisa.dma_copy(out, x)"
    assert race.rule == "core_barrier" and "nisa.core_barrier" in race.hint
