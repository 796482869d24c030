"""Instance numbers, typed again from the documents."""

from __future__ import annotations

import pytest

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
def test_facts(name, chips, cores, vcpus, host_gib, device_gib, on_demand, reserved):
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
def test_published_totals_follow_from_chips(name, device_gib, tb_per_s, logical):
    spec = INSTANCES[name]
    assert spec.device_memory_bytes == device_gib * 2**30
    assert spec.num_chips * spec.chip.hbm_bytes_per_s == pytest.approx(tb_per_s * 1e12)
    assert spec.num_logical_cores() == logical
    assert spec.num_logical_cores(1) == 2 * logical == spec.num_cores


def test_reserved_price_is_lower():
    for spec in INSTANCES.values():
        result = spec.price_on_demand_usd_per_h is not None
        assert result is (spec.family not in ("trn2", "trn3")), spec.name
    both = [spec for spec in INSTANCES.values() if spec.price_reserved_usd_per_h and spec.price_on_demand_usd_per_h]
    assert len(both) == 10
    assert all(0.3 < spec.price_reserved_usd_per_h / spec.price_on_demand_usd_per_h < 0.6 for spec in both)


def test_links_exist_on_multi_chip_instances():
    for spec in INSTANCES.values():
        assert (spec.link_bytes_per_s is None) is (spec.num_chips == 1)
        if spec.num_servers == 1:
            assert spec.server_link_bytes_per_s is None
    assert INSTANCES["trn1n.32xlarge"].link_bytes_per_s == 2 * INSTANCES["trn1.32xlarge"].link_bytes_per_s
    ultra = INSTANCES["trn2-ultraserver"]
    assert ultra.link_bytes_per_s + ultra.server_link_bytes_per_s == ultra.chip.link_bytes_per_s


def test_burst_network_is_labelled():
    assert "up to" in INSTANCES["trn1.2xlarge"].source("network_gbps")
    assert "up to" not in INSTANCES["trn1.32xlarge"].source("network_gbps")
    assert INSTANCES["inf2.xlarge"].network_gbps is None
