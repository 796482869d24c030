"""Metrics of a fleet: those of the ingress, and the pages of all replicas with the label `replica`.

metrics = FleetMetrics()
metrics.pages = {"a1b2": page}
metrics.text()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from ..metrics import Metrics


class FleetMetrics(Metrics):
    """Counts of the ingress, and what the replicas reported last."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, bytes] = {}
        """Pages of replicas by their identities."""

    def text(self) -> bytes:
        """Return the page that Prometheus reads; samples of one name are together."""
        families: dict[str, Metric] = {}
        for replica, page in {"": super().text(), **self.pages}.items():
            for family in text_string_to_metric_families(page.decode()):
                joined = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                label = {"replica": replica} if replica else {}
                joined.samples += [one._replace(labels={**one.labels, **label}) for one in family.samples]
        registry = CollectorRegistry()
        registry.register(_Families(families.values()))
        return generate_latest(registry)


class _Families:
    """Metrics that are known already."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield all of them."""
        yield from self._families
