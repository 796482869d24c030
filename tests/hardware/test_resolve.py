"""From names to targets and instances."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES, TARGETS, require_default_lnc, resolve_instance, resolve_target
from tests.raising import raises

NOTHING: dict[str, str] = {}


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("inf2", "inf2"),
        ("INF2", "inf2"),
        ("Inf2.xlarge", "inf2"),
        ("trn1n.32xlarge", "trn1n"),
        ("trn2u.48xlarge", "trn2"),
        ("trn3-gen1-ultraserver", "trn3"),
        ("inf1.xlarge", "inf1"),
        ("gen2", "trn1"),
        ("gen3", "trn2"),
        ("gen4", "trn3"),
    ],
)
def test_target_of_name(name, target):
    choice = resolve_target(name, NOTHING)
    assert choice.value is TARGETS[target]
    assert f"instance_type='{name}'" in choice.reason


def test_target_defaults_to_inf2_with_reason():
    choice = resolve_target(None, NOTHING)
    assert choice.value.name == "inf2"
    assert choice.reason.startswith("default")
    assert choice.to_dict()["value"] == "inf2"


@pytest.mark.parametrize(("value", "target"), [("trn1", "trn1"), ("gen3", "trn2"), ("TRN3", "trn3")])
def test_environment_names_target(value, target):
    choice = resolve_target(None, {"NEURON_PLATFORM_TARGET_OVERRIDE": value})
    assert choice.value.name == target
    assert "NEURON_PLATFORM_TARGET_OVERRIDE" in choice.reason


def test_argument_beats_override_beats_simulated_instance():
    environ = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2", "OPTIMUM_NEURON_INSTANCE": "trn1.32xlarge"}
    choice = resolve_target("inf2", environ)
    assert choice.value.name == "inf2"
    assert [r.candidate for r in choice.rejected] == [
        "NEURON_PLATFORM_TARGET_OVERRIDE=trn2",
        "OPTIMUM_NEURON_INSTANCE=trn1.32xlarge",
    ]
    assert resolve_target(None, environ).value.name == "trn2"
    assert resolve_target(None, {"OPTIMUM_NEURON_INSTANCE": "trn1.32xlarge"}).value.name == "trn1"


@pytest.mark.parametrize(
    ("name", "near"), [("inf3", "inf"), ("trn1.32xlage", "trn1.32xlarge"), ("inf2.xlarg", "inf2.xlarge"), ("", "")]
)
def test_unknown_name_is_refused_with_nearest_and_list(name, near):
    with raises(ConfigError, name=name, families=list(TARGETS), instances=list(INSTANCES)) as error:
        resolve_target(name, NOTHING)
    assert f"'{near}" in error.value.message


def test_unknown_name_in_environment_is_refused_with_its_variable():
    with raises(ConfigError, request="NEURON_PLATFORM_TARGET_OVERRIDE=h100"):
        resolve_target(None, {"NEURON_PLATFORM_TARGET_OVERRIDE": "h100"})
    with raises(ConfigError, request="OPTIMUM_NEURON_INSTANCE=p5.48xlarge"):
        resolve_instance(None, {"OPTIMUM_NEURON_INSTANCE": "p5.48xlarge"})


def test_instance_of_full_name():
    choice = resolve_instance("Inf2.48xlarge", NOTHING)
    assert choice.value is INSTANCES["inf2.48xlarge"]
    assert choice.rejected == ()
    assert str(choice) == "inf2.48xlarge (instance_type='Inf2.48xlarge' names it)"


@pytest.mark.parametrize(
    ("family", "smallest"),
    [
        ("inf1", "inf1.xlarge"),
        ("inf2", "inf2.xlarge"),
        ("trn1", "trn1.2xlarge"),
        ("trn1n", "trn1n.32xlarge"),
        ("trn2", "trn2.3xlarge"),
        ("trn3", "trn3-gen1-ultraserver"),
    ],
)
def test_family_resolves_to_smallest_instance_with_reason(family, smallest):
    choice = resolve_instance(family, NOTHING)
    assert choice.value.name == smallest
    assert f"smallest size of {family}" in choice.reason
    assert len(choice.rejected) == len(TARGETS[family].instances) - 1
    assert choice.value.num_cores == min(i.num_cores for i in TARGETS[family].instances)


def test_instance_without_name():
    assert resolve_instance(None, NOTHING).value.name == "inf2.xlarge"
    assert "default" in resolve_instance(None, NOTHING).reason
    environ = {"NEURON_PLATFORM_TARGET_OVERRIDE": "trn2", "OPTIMUM_NEURON_INSTANCE": "Trn1.32xlarge"}
    assert resolve_instance(None, environ).value.name == "trn1.32xlarge"
    assert resolve_instance(None, {"NEURON_PLATFORM_TARGET_OVERRIDE": "gen2"}).value.name == "trn1.2xlarge"


def test_target_among_flags_of_compiler():
    environ = {"NEURON_CC_FLAGS": "--target=trn2 -O1", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}
    choice = resolve_target(environ=environ)
    assert choice.value.name == "trn2" and "NEURON_CC_FLAGS" in choice.reason
    assert resolve_instance(environ=environ).value.family == "trn2"
    assert resolve_target("inf2", environ=environ).value.name == "inf2"


@pytest.mark.parametrize("name", ["NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"])
def test_logical_cores_of_another_size_are_refused(name):
    inf2, trn2 = TARGETS["inf2"].chip, TARGETS["trn2"].chip
    require_default_lnc(trn2, environ={name: "2"})
    require_default_lnc(inf2, environ={name: "1"})
    with pytest.raises(ConfigError) as illegal:
        require_default_lnc(inf2, environ={name: "2"})
    assert illegal.value.details["code"] == "NCC_EARG001"
    with raises(ConfigError, option=name, lnc=1, default=2):
        require_default_lnc(trn2, environ={name: "1"})
