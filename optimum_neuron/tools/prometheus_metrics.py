"""Lines of `neuron-monitor` as metrics of Prometheus, under the names and labels of the SDK's companion script.

A line has only the groups that are due: the last values of the other groups stay. Counters add up the values of lines.
The metrics of a process end with the first line that does not name it. They have its `pid` as a label too, because
processes may share a tag. It does not depend on HTTP.

    metrics = Metrics()
    metrics.update(json.loads(line))
    print(metrics.text())
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .report import CORE_MEMORY


class Series(NamedTuple):
    """One metric with its labels."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """Label names and values, sorted by name."""


class Metric(NamedTuple):
    """Type and help text of a metric."""

    kind: Literal["gauge", "counter"]
    help: str


_SYSTEM_MEMORY = ("memory_total_bytes", "memory_used_bytes", "swap_total_bytes", "swap_used_bytes")

METRICS: Mapping[str, Metric] = {
    "instance_info": Metric("gauge", "The simulated instance"),
    "neuron_hardware_info": Metric("gauge", "Devices and cores of the simulated instance"),
    "neuroncore_utilization_ratio": Metric("gauge", "NeuronCore utilization, 0 to 1, simulated"),
    **{
        f"neuroncore_memory_usage_{name}": Metric("gauge", f"NeuronCore memory for {name} in bytes")
        for name in CORE_MEMORY
    },
    "neuron_runtime_memory_used_bytes": Metric("gauge", "Memory of a process on the host and on devices in bytes"),
    "neuron_runtime_vcpu_usage_ratio": Metric("gauge", "Processor time of a process, 0 to 1 of all vCPUs"),
    "execution_status_total": Metric("counter", "Calls of compiled programs by outcome"),
    "execution_errors_total": Metric("counter", "Failed calls of compiled programs by kind of error"),
    "execution_latency_seconds": Metric("gauge", "Percentiles of the time of a call in seconds, simulated"),
    "hardware_ecc_events_total": Metric("counter", "Memory errors of devices; simulated devices have none"),
    **{f"system_{name}": Metric("gauge", f"Host {name.replace('_', ' ')}") for name in _SYSTEM_MEMORY},
    "system_vcpu_count": Metric("gauge", "vCPUs of the host"),
    "system_vcpu_usage_ratio": Metric("gauge", "Processor time of the host, 0 to 1 of all vCPUs"),
}
"""Every metric, in the order of the page."""

_INSTANCE_LABELS = {
    "instance_name": "instance_name",
    "instance_id": "instance_id",
    "instance_type": "instance_type",
    "availability_zone": "instance_availability_zone",
    "region": "instance_region",
    "subnet_id": "subnet_id",
}
"""Labels of every metric, with the fields of `instance_info` that they come from."""

Labels = Mapping[str, Any]
_Sample = tuple[str, Labels, float]
_SYSTEM = "system"


class Metrics:
    """The values of all metrics; one thread may update them while others read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[tuple[str, str], dict[Series, float]] = {}

    def update(self, line: Mapping[str, Any]) -> None:
        """Take the groups of a line of `neuron-monitor`."""
        labels = {name: line["instance_info"][field] for name, field in _INSTANCE_LABELS.items()}
        hardware = {name: value for name, value in line["neuron_hardware_info"].items() if name != "error"}
        samples_of: dict[tuple[str, str], list[_Sample]] = {
            (_SYSTEM, "instance_info"): [("instance_info", labels, 1.0)],
            (_SYSTEM, "neuron_hardware_info"): [("neuron_hardware_info", {**labels, **hardware}, 1.0)],
        }
        runtimes = {str(runtime["pid"]): runtime for runtime in line["neuron_runtime_data"]}
        owners = [(_SYSTEM, labels, line["system_data"])] + [
            (pid, {**labels, "runtime_tag": runtime["neuron_runtime_tag"], "pid": pid}, runtime["report"])
            for pid, runtime in runtimes.items()
        ]
        for owner, own_labels, groups in owners:
            for name, group in groups.items():
                # A group with an error has figures that are to be left out.
                samples_of[owner, name] = [] if group["error"] else list(_samples(name, group, own_labels))
        with self._lock:
            self._groups = {key: old for key, old in self._groups.items() if key[0] in (_SYSTEM, *runtimes)}
            for key, samples in samples_of.items():
                self._groups[key] = _added(self._groups.get(key, {}), samples)

    def text(self) -> str:
        """Return all metrics in Prometheus's text format."""
        with self._lock:
            values = [item for group in self._groups.values() for item in group.items()]
        lines = []
        for name, metric in METRICS.items():
            shown = [(series, value) for series, value in values if series.name == name]
            if shown:
                lines += [f"# HELP {name} {metric.help}", f"# TYPE {name} {metric.kind}"]
                lines += [f"{name}{{{_labels_text(series)}}} {value!r}" for series, value in shown]
        return "".join(f"{line}\n" for line in lines)


def _added(before: Mapping[Series, float], samples: list[_Sample]) -> dict[Series, float]:
    """The values of a group after a line: gauges come from the line, counters go on."""
    values = {series: value for series, value in before.items() if METRICS[series.name].kind == "counter"}
    for name, labels, value in samples:
        series = Series(name, tuple(sorted((label, str(text)) for label, text in labels.items())))
        values[series] = values.get(series, 0.0) + float(value)
    return values


def _samples(name: str, group: Mapping[str, Any], labels: Labels) -> Iterator[_Sample]:
    """The samples of one group of metrics; groups without metrics have none."""
    if name == "neuroncore_counters":
        for core, counters in group["neuroncores_in_use"].items():
            ratio = counters["neuroncore_utilization"] / 100
            yield "neuroncore_utilization_ratio", {**labels, "neuroncore": core}, ratio
    elif name == "memory_used":
        used = group["neuron_runtime_used_bytes"]
        for place in ("host", "neuron_device"):
            yield "neuron_runtime_memory_used_bytes", {**labels, "memory_location": place}, used[place]
        for core, memory in used["usage_breakdown"]["neuroncore_memory_usage"].items():
            for kind in CORE_MEMORY:
                core_labels = {**labels, "neuroncore": core, "memory_location": None}
                yield f"neuroncore_memory_usage_{kind}", core_labels, memory[kind]
    elif name == "neuron_runtime_vcpu_usage":
        for usage, percent in group["vcpu_usage"].items():
            yield "neuron_runtime_vcpu_usage_ratio", {**labels, "usage_type": usage}, percent / 100
    elif name == "execution_stats":
        for status, count in group["execution_summary"].items():
            yield "execution_status_total", {**labels, "status_type": status}, count
        for error, count in group["error_summary"].items():
            yield "execution_errors_total", {**labels, "error_type": error}, count
        for percentile, seconds in (group["latency_stats"]["total_latency"] or {}).items():
            yield "execution_latency_seconds", {**labels, "percentile": percentile}, seconds
    elif name == "vcpu_usage":
        yield "system_vcpu_count", labels, len(group["usage_data"])
        for usage, percent in group["average_usage"].items():
            yield "system_vcpu_usage_ratio", {**labels, "usage_type": usage}, percent / 100
    elif name == "memory_info":
        for field in _SYSTEM_MEMORY:
            yield f"system_{field}", labels, group[field]
    elif name == "neuron_hw_counters":
        for device in group["neuron_devices"]:
            index = device["neuron_device_index"]
            for event, count in device.items():
                if event != "neuron_device_index":
                    event_labels = {**labels, "event_type": event, "neuron_device_index": index}
                    yield "hardware_ecc_events_total", event_labels, count


def _labels_text(series: Series) -> str:
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return ",".join(f'{name}="{text.translate(escapes)}"' for name, text in series.labels)
