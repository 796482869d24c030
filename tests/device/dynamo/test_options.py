"""Options are read, or refused by name."""

import pytest

from optimum_neuron.device.dynamo.options import CompileOptions
from optimum_neuron.errors import ConfigError
from tests.raising import raises


def test_options_and_defaults():
    assert CompileOptions.from_torch() == CompileOptions() == CompileOptions.from_torch(mode="default", options={})
    inputs = CompileOptions.from_torch(options={"optlevel": 3, "allow_host_ops": ["aten::sort"], "target": "trn2"})
    assert (inputs.optlevel, inputs.allow_host_ops) == ("3", ("aten::sort",))
    assert inputs.resolve().value.name == "trn2"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("triton.cudagraphs", True),
        ("max_autotune", True),
        ("auto_kast", "all"),
        ("auto_cast", "matmult"),
        ("optlevel", "4"),
        ("auto_cast_type", "int8"),
    ],
)
def test_inductor_options_unknown_options_and_values_are_errors(option, value):
    with raises(ConfigError, option=option, value=value) as error:
        CompileOptions.from_torch(options={option: value})
    assert error.value.hint


def test_all_problems_are_reported_together():
    with pytest.raises(ConfigError) as error:
        CompileOptions.from_torch(mode="reduce-overhead", options={"triton.cudagraphs": True, "tarjet": "trn2"})
    options = [problem["details"]["option"] for problem in error.value.details["problems"]]
    assert options == ["mode", "triton.cudagraphs", "tarjet"] and len(str(error.value).splitlines()) == 3


def test_missing_target_is_error():
    with raises(ConfigError, name="trn9"):
        CompileOptions(target="trn9").resolve()


def test_compiler_flags_of_environment_are_defaults(monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--target=trn2 --auto-cast=all -O1")
    options = CompileOptions.from_torch()
    assert (options.auto_cast, options.optlevel, options.resolve().value.name) == ("all", "1", "trn2")
    assert CompileOptions.from_torch(options={"auto_cast": "none"}).auto_cast == "none"
