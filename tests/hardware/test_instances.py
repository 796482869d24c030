"""Instance numbers, typed again from the documents."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES


@pytest.mark.parametrize(
    ("name", "chips", "cores", "vcpus", "host_gib", "device_gib", "on_demand", "reserved"),
    [
        ("inf1.6xlarge", 4, 16, 24, 48, 32, 1.18, 0.567),
        ("inf2.xlarge", 1, 2, 4, 16, 32, 0.758, 0.328),
        ("inf2.48xlarge", 12, 24, 192, 768, 384, 12.981, 5.608),
        ("trn1.32xlarge", 16, 32, 128, 512, 512, 21.50, 8.197),
    ],
)
def test_facts(
    name: str, chips: int, cores: int, vcpus: int, host_gib: int, device_gib: int, on_demand: float, reserved: float
) -> None:
    spec = INSTANCES[name]
    assert (spec.num_chips, spec.num_cores, spec.vcpus) == (chips, cores, vcpus)
    assert (spec.host_memory_bytes, spec.device_memory_bytes) == (host_gib * 2**30, device_gib * 2**30)
    assert spec.price_on_demand_usd_per_h == pytest.approx(on_demand, abs=1e-3)
    assert spec.price_reserved_usd_per_h == reserved


@pytest.mark.parametrize(
    ("name", "device_gib", "tb_per_s", "logical"),
    [
        ("trn2.48xlarge", 1536, 46.4, 64),
        ("trn2-ultraserver", 6144, 185.6, 256),
        ("trn3-gen1-ultraserver", 9216, 313.6, 256),
        ("trn3-gen2-ultraserver", 20736, 705.6, 576),
    ],
)
def test_published_totals_follow_from_the_chips(name: str, device_gib: int, tb_per_s: float, logical: int) -> None:
    spec = INSTANCES[name]
    assert spec.device_memory_bytes == device_gib * 2**30
    assert spec.num_chips * spec.chip.hbm_bytes_per_s == pytest.approx(tb_per_s * 1e12)
    assert spec.num_logical_cores() == logical
    assert spec.num_logical_cores(1) == 2 * logical == spec.num_cores


def test_newer_families_have_no_price_and_older_ones_have() -> None:
    for spec in INSTANCES.values():
        priced = spec.price_on_demand_usd_per_h is not None
        assert priced is (spec.family not in ("trn2", "trn3")), spec.name


def test_reserved_is_cheaper_than_on_demand() -> None:
    both = [
        (s.price_reserved_usd_per_h, s.price_on_demand_usd_per_h)
        for s in INSTANCES.values()
        if s.price_reserved_usd_per_h is not None and s.price_on_demand_usd_per_h is not None
    ]
    assert len(both) == 10
    assert all(0.3 < reserved / on_demand < 0.6 for reserved, on_demand in both)


def test_links_exist_where_there_is_something_to_link() -> None:
    for spec in INSTANCES.values():
        assert (spec.link_bytes_per_s is None) is (spec.num_chips == 1)
        if spec.num_servers == 1:
            assert spec.server_link_bytes_per_s is None
    assert INSTANCES["trn1n.32xlarge"].link_bytes_per_s == 2 * (INSTANCES["trn1.32xlarge"].link_bytes_per_s or 0)
    ultra = INSTANCES["trn2-ultraserver"]
    assert (ultra.link_bytes_per_s or 0) + (ultra.server_link_bytes_per_s or 0) == ultra.chip.link_bytes_per_s


def test_network_that_is_a_burst_says_so() -> None:
    assert "up to" in INSTANCES["trn1.2xlarge"].source("network_gbps")
    assert "up to" not in INSTANCES["trn1.32xlarge"].source("network_gbps")
    assert INSTANCES["inf2.xlarge"].network_gbps is None


def test_two_cores_of_trainium1_are_not_one() -> None:
    with pytest.raises(ConfigError, match="NCC_EARG001") as error:
        INSTANCES["trn1.32xlarge"].num_logical_cores(2)
    assert error.value.details == {"code": "NCC_EARG001", "lnc": 2, "legal": [1]}
