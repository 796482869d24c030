"""Flags of neuron-cc: what they decide, and flags of the other compiler."""

from __future__ import annotations

import pytest

from optimum_neuron.compiler.flags import parse_flags
from optimum_neuron.compiler.neuron_cc import parse_neuron_cc
from optimum_neuron.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "cores", "cast"),
    [
        (None, 1, ("all", "bf16")),
        ("--fast-math none", 1, ("matmul", "bf16")),
        (["--fast-math", "none", "fp32-cast-all-fp16"], 1, ("all", "fp16")),
        (["--fp32-cast=matmult-fp16", "--fast-math", "all"], 1, ("matmul", "fp16")),
        (["--neuroncore-pipeline-cores", 4, "--enable-fast-loading-neuron-binaries"], 4, ("all", "bf16")),
        ("--num-neuroncores 2 --verbose 35", 2, ("all", "bf16")),
        (["--neuroncore-pipeline-cores 3"], 3, ("all", "bf16")),
    ],
)
def test_flags_decide_casts_and_cores(arguments, cores, cast):
    flags = parse_neuron_cc(arguments)
    assert flags.pipeline_cores == cores
    assert (flags.auto_cast, flags.auto_cast_type) == cast


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ("--fast-math all none", 1),
        ("--fast-math fp32-cast-all fp32-cast-matmult", 1),
        ("--neuroncore-pipeline-cores 0", 1),
        ("--neuroncore-pipeline-cores", 1),
        ("--fast-mth all --fp32-cast bf16", 2),
        ("--auto-cast matmult -O1 --target inf2", 3),
    ],
)
def test_every_wrong_flag_is_named(arguments, count):
    with pytest.raises(ConfigError) as error:
        parse_neuron_cc(arguments)
    assert len(error.value.details["problems"]) == count


@pytest.mark.parametrize("cast", ["--fast-math fp32-cast-all-tf32", "--fp32-cast fp8", "--fast-math all fp8_e4m3"])
def test_dtypes_of_later_cores_have_their_reason(cast):
    with pytest.raises(ConfigError) as error:
        parse_neuron_cc(cast)
    (problem,) = error.value.details["problems"]
    assert "NeuronCore-v1 has no" in problem and "did you mean" not in problem


def test_each_compiler_knows_the_flags_of_the_other():
    with pytest.raises(ConfigError) as error:
        parse_neuron_cc("--auto-cast matmult")
    assert "neuronx-cc" in error.value.details["problems"][0] and "--fast-math" in error.value.details["problems"][0]
    with pytest.raises(ConfigError) as error:
        parse_flags("--fast-math none")
    assert error.value.details["flags"] == ["--fast-math"]
    assert "--auto-cast" in error.value.details["problems"][0]
