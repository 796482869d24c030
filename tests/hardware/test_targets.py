"""Supported and unsupported features of a target."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError, UnsupportedDtypeError
from optimum_neuron.hardware import TARGETS, canonical_dtype, require_compilable, require_dtype
from tests.raising import raises


def test_names_cores_and_casts():
    second = ("bf16", "fp16", "tf32")
    assert {name: (target.core.name, target.auto_cast_types) for name, target in TARGETS.items()} == {
        "inf1": ("NeuronCore-v1", ("bf16", "fp16")),
        "inf2": ("NeuronCore-v2", second),
        "trn1": ("NeuronCore-v2", second),
        "trn1n": ("NeuronCore-v2", second),
        "trn2": ("NeuronCore-v3", (*second, "fp8_e4m3")),
        "trn3": ("NeuronCore-v4", (*second, "fp8_e4m3")),
    }
    assert str(TARGETS["trn1n"]) == "trn1n"


@pytest.mark.parametrize(
    ("name", "lnc", "cores", "gib"),
    [("inf2", None, 2, 16), ("trn1", 1, 2, 16), ("trn2", None, 4, 24), ("trn2", 1, 8, 12), ("trn3", 2, 4, 36)],
)
def test_share_of_logical_core(name, lnc, cores, gib):
    target = TARGETS[name]
    assert target.logical_cores_per_chip(lnc) == cores
    assert target.hbm_bytes_per_core(lnc) == gib * 2**30
    assert target.hbm_bytes_per_s_per_core(lnc) == target.chip.hbm_bytes_per_s / cores


@pytest.mark.parametrize(("name", "lnc"), [("inf2", 2), ("trn1", 2), ("trn2", 4), ("trn2", 0), ("trn3", 8)])
def test_unknown_logical_cores_are_refused(name, lnc):
    with raises(ConfigError, code="NCC_EARG001", lnc=lnc, legal=list(TARGETS[name].chip.lncs)):
        TARGETS[name].hbm_bytes_per_core(lnc)


@pytest.mark.parametrize(
    ("name", "dtype", "supported"),
    [
        ("inf1", "float32", True),
        ("inf1", "tf32", False),
        ("inf2", "torch.bfloat16", True),
        ("inf2", "fp8_e4m3", False),
        ("inf2", "float8_e4m3", True),
        ("trn2", "fp8_e4m3", True),
        ("trn2", "float8_e4m3fn", False),
        ("trn3", "float8_e4m3fn", True),
        ("trn3", "mxfp8", True),
        ("trn2", "mxfp8", False),
        ("trn2", "int64", False),
        ("trn2", "bool", True),
        ("trn2", "float64", False),
        ("trn2", "complex64", False),
    ],
)
def test_supports_dtype(name, dtype, supported):
    assert TARGETS[name].supports_dtype(dtype) is supported


def test_require_dtype_returns_canonical_name():
    assert require_dtype(TARGETS["trn1"], "bf16") == "bfloat16"
    assert require_dtype(TARGETS["trn2"], "fp8_e4m3") == "float8_e4m3"
    assert require_dtype(TARGETS["inf2"], "torch.half") == "float16"


def test_refused_cast_lists_supported_casts():
    with pytest.raises(UnsupportedDtypeError) as error:
        require_dtype(TARGETS["inf2"], "fp8_e4m3")
    assert error.value.details["supported"] == ["bf16", "fp16", "tf32"]
    assert error.value.details["targets"] == ["trn2", "trn3"]


def test_refused_wide_dtype_names_narrow_one():
    with raises(UnsupportedDtypeError, dtype="int64", targets=[]) as error:
        require_dtype(TARGETS["trn2"], "int64")
    assert "int32" in error.value.hint


def test_misspelled_dtype_is_refused():
    with raises(ConfigError, option="dtype", value="bfloat61"):
        TARGETS["inf2"].supports_dtype("bfloat61")
    assert canonical_dtype(" BF16 ") == "bfloat16"


def test_only_inf1_cannot_be_compiled_for():
    assert [t.name for t in TARGETS.values() if not t.compilable] == ["inf1"]
    assert require_compilable(TARGETS["trn3"]) is TARGETS["trn3"]
    with pytest.raises(ConfigError) as error:
        require_compilable(TARGETS["inf1"])
    assert error.value.details == {"target": "inf1", "targets": ["inf2", "trn1", "trn1n", "trn2", "trn3"]}


def test_timings_exist_from_second_generation_on():
    assert TARGETS["inf1"].timing is None
    inf2, trn2 = TARGETS["inf2"].timing, TARGETS["trn2"].timing
    assert (inf2.matmul_min_cycles, inf2.fp32_matmul_factor, inf2.dma_descriptor_ns) == (64, 4, None)
    assert (trn2.dma_descriptor_ns, trn2.dma_transpose_rate["hbm_to_sbuf"]) == (600, 0.9)
