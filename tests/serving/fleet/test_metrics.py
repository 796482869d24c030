"""Pages of replicas become one page that Prometheus' parser reads."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from optimum_neuron.serving import Metrics
from optimum_neuron.serving.fleet.metrics import FleetMetrics


def test_samples_of_replicas_are_told_apart():
    pages = {}
    for replica, num_requests in (("a", 1), ("b", 3)):
        metrics = Metrics()
        for _ in range(num_requests):
            metrics.note_http("/v1/completions", "POST", 200, 0.1)
        pages[replica] = metrics.text()
    fleet = FleetMetrics()
    fleet.note_http("/health", "GET", 200, 0.1)
    fleet.pages = pages
    families = list(text_string_to_metric_families(fleet.text().decode()))
    assert len({family.name for family in families}) == len(families)
    (requests,) = [family for family in families if family.name == "http_requests"]
    counts = {sample.labels.get("replica"): sample.value for sample in requests.samples if "total" in sample.name}
    assert counts == {None: 1.0, "a": 1.0, "b": 3.0}
