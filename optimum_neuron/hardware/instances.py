"""EC2 instance sizes and UltraServers, with host, network and prices.

Prices are us-east-1, in US dollars per hour, as of August 2026. The documents cited give none for trn2 and trn3: there
a cost estimate needs a price from its caller.

    >>> from optimum_neuron.hardware import INSTANCES
    >>> INSTANCES["inf2.xlarge"].price_on_demand_usd_per_h
    0.7582
    >>> INSTANCES["trn2.48xlarge"].source("price_on_demand_usd_per_h")
    'the documents cited here give no price for this size: pass your own'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from . import documents as doc
from .chips import CHIPS
from .specs import GIB, ChipSpec, InstanceSpec

NO_PRICE = "the documents cited here give no price for this size: pass your own"
"""Why a price is None."""

_ONE_CHIP = "one chip: nothing to link"
_ONE_SERVER = "one server: nothing to link"
_UP_TO = ", given as 'up to'"
_BURST_NETWORK = ("inf1.xlarge", "inf1.2xlarge", "trn1.2xlarge")


class _Row(NamedTuple):
    """One line of the table; memory in GiB."""

    name: str
    num_chips: int
    vcpus: int | None
    host_gib: int | None
    network_gbps: float | None
    on_demand: float | None
    reserved: float | None
    num_servers: int = 1


_INF1 = (
    _Row("inf1.xlarge", 1, 4, 8, 25.0, 0.228, 0.110),
    _Row("inf1.2xlarge", 1, 8, 16, 25.0, 0.362, 0.174),
    _Row("inf1.6xlarge", 4, 24, 48, 25.0, 1.18, 0.567),
    _Row("inf1.24xlarge", 16, 96, 192, 100.0, 4.721, 2.269),
)
_INF2 = (
    _Row("inf2.xlarge", 1, 4, 16, None, 0.7582, 0.328),
    _Row("inf2.8xlarge", 1, 32, 128, None, 1.96786, 0.850),
    _Row("inf2.24xlarge", 6, 96, 384, None, 6.49063, 2.804),
    _Row("inf2.48xlarge", 12, 192, 768, None, 12.98127, 5.608),
)
_TRN1 = (
    _Row("trn1.2xlarge", 1, 8, 32, 25.0, 1.34375, 0.512),
    _Row("trn1.32xlarge", 16, 128, 512, 800.0, 21.50, 8.197),
)
_TRN1N = (_Row("trn1n.32xlarge", 16, 128, 512, 1600.0, 24.78, None),)
_TRN2_3XLARGE = (_Row("trn2.3xlarge", 1, None, None, None, None, None),)
_TRN2 = (
    _Row("trn2.48xlarge", 16, 192, 2048, 3200.0, None, None),
    _Row("trn2u.48xlarge", 16, 192, 2048, 3200.0, None, None),
)
_TRN2_ULTRA = (_Row("trn2-ultraserver", 64, 768, 8192, 3200.0, None, None, 4),)
_TRN3_ULTRA = (
    _Row("trn3-gen1-ultraserver", 64, 768, 8192, 12800.0, None, None, 4),
    _Row("trn3-gen2-ultraserver", 144, 2304, 27648, 28800.0, None, None, 36),
)


def _instance(
    row: _Row, family: str, chip: ChipSpec, document: str, link: float, server_link: float | None
) -> InstanceSpec:
    def source_of(value: float | None, source: str, otherwise: str = doc.NOT_PUBLISHED) -> str:
        return source if value is not None else otherwise

    in_server = row.num_chips > 1
    between = server_link if row.num_servers > 1 else None
    no_between = doc.NOT_PUBLISHED if row.num_servers > 1 else _ONE_SERVER
    return InstanceSpec(
        name=row.name,
        family=family,
        chip=chip,
        num_chips=row.num_chips,
        num_servers=row.num_servers,
        vcpus=row.vcpus,
        host_memory_bytes=None if row.host_gib is None else row.host_gib * GIB,
        device_memory_bytes=row.num_chips * chip.hbm_bytes,
        network_gbps=row.network_gbps,
        link_bytes_per_s=link if in_server else None,
        server_link_bytes_per_s=between,
        price_on_demand_usd_per_h=row.on_demand,
        price_reserved_usd_per_h=row.reserved,
        sources={
            "num_chips": document,
            "num_servers": document,
            "device_memory_bytes": document,
            "vcpus": source_of(row.vcpus, document),
            "host_memory_bytes": source_of(row.host_gib, document),
            "network_gbps": source_of(row.network_gbps, document + (_UP_TO if row.name in _BURST_NETWORK else "")),
            "link_bytes_per_s": document if in_server else _ONE_CHIP,
            "server_link_bytes_per_s": source_of(between, document, no_between),
            "price_on_demand_usd_per_h": source_of(row.on_demand, doc.ON_DEMAND_PRICES, NO_PRICE),
            "price_reserved_usd_per_h": source_of(row.reserved, doc.RESERVED_PRICES, NO_PRICE),
        },
    )


_FAMILIES: tuple[tuple[str, str, str, float, float | None, tuple[_Row, ...]], ...] = (
    # family, chip, document, bytes/s of one chip's links in its server, between servers, sizes
    ("inf1", "Inferentia", doc.INF1, 32.0 * GIB, None, _INF1),
    ("inf2", "Inferentia2", doc.INF2, 192e9, None, _INF2),
    ("trn1", "Trainium", doc.TRN1, 384e9, None, _TRN1),
    ("trn1n", "Trainium", doc.TRN1, 768e9, None, _TRN1N),
    ("trn2", "Trainium2", doc.TRN2_3XLARGE, 1024e9, None, _TRN2_3XLARGE),
    ("trn2", "Trainium2", doc.TRN2, 1024e9, 256e9, _TRN2 + _TRN2_ULTRA),
    ("trn3", "Trainium3", doc.TRN3, 2048.0 * GIB, None, _TRN3_ULTRA),
)

INSTANCES: Mapping[str, InstanceSpec] = {
    row.name: _instance(row, family, CHIPS[chip], document, link, server_link)
    for family, chip, document, link, server_link, rows in _FAMILIES
    for row in rows
}
"""Instance sizes by name, smallest first within a family."""
