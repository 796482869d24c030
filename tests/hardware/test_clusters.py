"""Several instances of one type: their counts and prices, the stages on each, and refusals."""

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import (
    INSTANCES,
    is_first_of_instance,
    legal_core_counts,
    one_of,
    require_degrees,
    resolve_instance,
    resolve_target,
    stage_instances,
)

ONE, TWO = INSTANCES["trn1.32xlarge"], resolve_instance("2xtrn1.32xlarge").value


def test_counts_and_prices_are_of_all_instances_and_rates_of_one():
    assert (TWO.name, TWO.num_instances, TWO.num_logical_cores()) == ("2xtrn1.32xlarge", 2, 64)
    assert TWO.price_on_demand_usd_per_h == 2 * ONE.price_on_demand_usd_per_h
    assert TWO.device_memory_bytes == 2 * ONE.device_memory_bytes
    assert TWO.network_gbps == ONE.network_gbps and TWO.source("network_gbps") == ONE.source("network_gbps")
    assert legal_core_counts(TWO).counts == (2, 4, 16, 32, 64)
    assert one_of(TWO) is ONE is one_of(ONE)


def test_a_name_has_the_count_before_the_type():
    choice = resolve_instance("3xTrn1")
    assert choice.value.name == "3xtrn1.2xlarge" and "3 instances" in choice.reason
    assert resolve_instance("1xtrn1.32xlarge").value is ONE
    assert resolve_target("2xtrn1.32xlarge").value.name == "trn1"
    assert resolve_instance(None, {"OPTIMUM_NEURON_INSTANCE": "2xtrn1.32xlarge"}).value == TWO


@pytest.mark.parametrize("name", ["0xtrn1", "65xtrn1.32xlarge", "2xinf2.48xlarge", "2xtrn9", "xtrn1", "-2xtrn1"])
def test_names_of_no_cluster_are_refused(name):
    with pytest.raises(ConfigError) as caught:
        resolve_instance(name, {})
    assert "name" in caught.value.details


@pytest.mark.parametrize(("tensor", "pipeline"), [(32, 2), (8, 4), (1, 64), (16, 4)])
def test_every_instance_has_the_same_number_of_stages(tensor, pipeline):
    require_degrees(TWO, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    assert stage_instances(TWO, pipeline) == [0] * (pipeline // 2) + [1] * (pipeline // 2)
    assert [stage for stage in range(pipeline) if is_first_of_instance(TWO, stage, pipeline)] == [pipeline // 2]


@pytest.mark.parametrize(
    ("tensor", "pipeline", "details"),
    [
        (1, 1, {"num_instances": 2}),
        (8, 3, {"num_instances": 2}),
        (64, 2, {"num_cores": 64}),
        (32, 4, {"num_cores": 128, "num_instances": 4}),
        (8, 6, {"num_cores": 24}),
    ],
)
def test_degrees_that_instances_cannot_place_are_refused(tensor, pipeline, details):
    with pytest.raises(ConfigError) as caught:
        require_degrees(TWO, tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    assert details.items() <= caught.value.details.items()
