"""The vocabulary."""

from __future__ import annotations

import dataclasses
import json
import pickle
from typing import get_args

import pytest
import torch

from optimum_neuron.base import core
from optimum_neuron.base.core import DTYPE_SIZE_BYTES, Choice, Rejected, Ruling, TensorSpec, Verdict


@pytest.mark.parametrize(
    ("shape", "dtype", "num_elements", "size_bytes"),
    [
        ((1, 128), "int64", 128, 1024),
        ((), "float32", 1, 4),
        ((0, 5), "bfloat16", 0, 0),
        ((3,), "float8_e4m3fn", 3, 3),
        ((2**20, 2**20), "bool", 2**40, 2**40),
    ],
)
def test_sizes(shape, dtype, num_elements, size_bytes):
    spec = TensorSpec(shape=shape, dtype=dtype)
    assert (spec.num_elements, spec.size_bytes) == (num_elements, size_bytes)


@pytest.mark.parametrize("name", DTYPE_SIZE_BYTES)
def test_element_sizes_are_torchs(name):
    assert getattr(torch, name).itemsize == DTYPE_SIZE_BYTES[name]


def test_spec_reads_like_shape_and_compares_by_value():
    spec = TensorSpec(shape=(1, 2), dtype="bfloat16")
    assert str(spec) == "bfloat16[1, 2]" and str(TensorSpec(shape=(), dtype="bool")) == "bool[]"
    assert spec == TensorSpec(shape=(1, 2), dtype="bfloat16") and hash(spec) == hash(dataclasses.replace(spec))
    assert spec != dataclasses.replace(spec, dtype="float16")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.dtype = "float32"


def test_every_type_of_weights_has_size_and_choices_are_compilers():
    assert set(get_args(core.TorchDtype)) <= DTYPE_SIZE_BYTES.keys()
    assert get_args(core.AutoCast) == ("none", "matmul", "all")
    assert set(get_args(core.AutoCastType)) == {"bf16", "fp16", "tf32", "fp8_e4m3"}


def test_choice_lists_rejected_options_with_reasons():
    losers = [{"candidate": "64", "reason": "too short"}, {"candidate": "512", "reason": "longer"}]
    choice = Choice(value=128, reason="it holds 90", rejected=tuple(Rejected(**loser) for loser in losers))
    assert str(choice).splitlines() == ["128 (it holds 90)", "  not 64: too short", "  not 512: longer"]
    assert json.loads(json.dumps(choice.to_dict())) == {"value": 128, "reason": "it holds 90", "rejected": losers}


@pytest.mark.parametrize("value", ["inf2", 3, 1.5, True, None])
def test_choice_keeps_plain_values_and_stringifies_others(value):
    assert Choice(value=value, reason="r").to_dict()["value"] is value
    spec = TensorSpec(shape=(2,), dtype="int8")
    assert Choice(value=spec, reason="r").to_dict()["value"] == "int8[2]"


def test_verdict_is_its_text_and_ruling_needs_its_reason_and_source():
    assert [str(verdict) for verdict in Verdict] == ["native", "decomposed", "host", "unsupported"]
    assert json.dumps(Verdict.HOST) == '"host"'
    fields = {"verdict": Verdict.NATIVE, "op": "aten.mm.default", "rule": "matmul", "reason": "TensorE"}
    with pytest.raises(TypeError, match="source"):
        Ruling(**fields)
    ruling = Ruling(**fields, source="docs")
    assert (ruling.code, ruling.remedy, ruling.module_path, ruling.source_line) == (None,) * 4


def test_vocabulary_survives_copying_between_processes():
    choice = Choice(value=TensorSpec(shape=(1,), dtype="int8"), reason="r")
    assert pickle.loads(pickle.dumps(choice)) == choice
