"""Lines of `neuron-monitor` become metrics under the SDK's names: values stay, counters add up, processes end."""

from __future__ import annotations

import re

import pytest

from optimum_neuron.hardware import INSTANCES
from optimum_neuron.tools import Metrics, report
from optimum_neuron.tools.host import CPU_FIELDS, ProcessUse
from optimum_neuron.tools.prometheus_metrics import METRICS
from optimum_neuron.tools.usage import usage_between
from tests.tools.conftest import graph, status

SMALL = INSTANCES["inf2.xlarge"]


def make_line(groups=None, system=None, *, pid=7, tag="chat"):
    """A line as `neuron-monitor` writes it; without groups, no process is in it."""
    runtime = {"pid": pid, "address": "", "neuron_runtime_tag": tag, "error": "", "report": groups}
    return {
        "neuron_runtime_data": [] if groups is None else [runtime],
        "system_data": system or {},
        "instance_info": report.instance_info(SMALL),
        "neuron_hardware_info": report.neuron_hardware_info(SMALL),
        "simulated": True,
    }


def runtime_groups():
    core = {"cores": (1,), "hbm": {"bert": {"weights": 5, "kv_cache": 6, "scratch": 7, "code": 8}}}
    after = status(2.0, graph(100), errors={"completed_with_err": 2}, **core)
    usage = usage_between(status(1.0, graph(0), **core), after)
    host = ProcessUse(user_s=1.0, system_s=0.5, memory_bytes=1000)
    return {
        "neuroncore_counters": report.neuroncore_counters(1.0, usage, SMALL),
        "execution_stats": report.execution_stats(1.0, usage),
        "memory_used": report.memory_used(1.0, after, host, SMALL, usage),
        "neuron_runtime_vcpu_usage": report.neuron_runtime_vcpu_usage(2.0, ProcessUse(), host, 1),
    }


def system_groups():
    times = dict.fromkeys(CPU_FIELDS, 0.0)
    later = {**times, "user": 1.0, "idle": 3.0}
    return {
        "vcpu_usage": report.vcpu_usage(1.0, (times, times), (later, later), 5),
        "memory_info": report.memory_info(1.0, total=8, used=4, swap_total=2, swap_used=1),
        "neuron_hw_counters": report.neuron_hw_counters(1.0, SMALL),
    }


def values(metrics):
    """Values by metric and labels, without the labels of the instance, which every line of the page has."""
    results = {}
    for line in metrics.text().splitlines():
        if line.startswith("#"):
            continue
        name, labels, value = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()
        assert 'instance_id="simulated"' in labels
        own = re.findall(r'(neuroncore|memory_location|usage_type|status_type|error_type|percentile)="(\w+)"', labels)
        results[" ".join([name, *(value for _, value in sorted(own))])] = float(value)
    return results


@pytest.fixture
def metrics():
    """The metrics after a line with every group."""
    metrics = Metrics()
    metrics.update(make_line(runtime_groups(), system_groups()))
    return metrics


def test_every_group_has_its_metrics_under_names_of_sdk(metrics):
    result = values(metrics)
    assert {name.split()[0] for name in result} == METRICS.keys()
    assert result["neuroncore_utilization_ratio 1"] == pytest.approx(0.2 / 1.2)
    assert result["neuron_runtime_memory_used_bytes host"] == 1000
    assert result["neuron_runtime_memory_used_bytes neuron_device"] == 26
    assert result["neuroncore_memory_usage_constants None 1"] == 5
    assert result["neuron_runtime_vcpu_usage_ratio user"] == 0.5
    assert result["execution_status_total completed"] == 100 and result["execution_errors_total generic"] == 2
    assert result["execution_latency_seconds p50"] == 0.002
    assert result["system_vcpu_count"] == 2 and result["system_vcpu_usage_ratio user"] == 0.25
    assert (result["system_memory_total_bytes"], result["system_swap_used_bytes"]) == (8, 1)


def test_page_is_prometheus_text(metrics):
    page = metrics.text()
    start = page.index("# HELP execution_status_total")
    kind, first = page[start:].splitlines()[1:3]
    assert kind == "# TYPE execution_status_total counter"
    assert first == (
        'execution_status_total{availability_zone="",instance_id="simulated",instance_name="",'
        'instance_type="inf2.xlarge",pid="7",region="",runtime_tag="chat",status_type="completed",subnet_id=""} 100.0'
    )
    assert page.endswith("\n") and len(page.splitlines()) == len(set(page.splitlines()))


def test_groups_not_due_keep_values_and_counters_add_up(metrics):
    before = values(metrics)
    metrics.update(make_line({"execution_stats": runtime_groups()["execution_stats"]}))
    after = values(metrics)
    assert after.pop("execution_status_total completed") == 200 and after.pop("execution_errors_total generic") == 4
    assert after.pop("execution_status_total completed_with_err") == 4
    assert after.items() <= before.items() and len(after) == len(before) - 3


def test_group_with_error_has_no_values_but_keeps_counters(metrics):
    broken = {name: {**group, "error": "cannot be known"} for name, group in runtime_groups().items()}
    metrics.update(make_line(broken))
    result = values(metrics)
    assert result["execution_status_total completed"] == 100
    assert not [name for name in result if name.startswith(("neuroncore", "execution_latency", "neuron_runtime"))]


def test_ended_process_is_removed(metrics):
    metrics.update(make_line({}))
    assert "execution_status_total completed" in values(metrics)
    metrics.update(make_line())
    system = ("system_", "hardware_ecc", "instance_", "neuron_hardware")
    assert {name.split()[0] for name in values(metrics)} == {name for name in METRICS if name.startswith(system)}


def test_processes_with_one_tag_are_two_and_labels_are_escaped():
    metrics = Metrics()
    line = make_line(runtime_groups(), tag='a "b"\\\n')
    line["neuron_runtime_data"] += make_line(runtime_groups(), pid=8, tag='a "b"\\\n')["neuron_runtime_data"]
    metrics.update(line)
    page = metrics.text()
    assert page.count("neuroncore_utilization_ratio{") == 2 and 'pid="8"' in page
    assert r'runtime_tag="a \"b\"\\\n"' in page


@pytest.mark.parametrize("line", [{}, [], 3, {"instance_info": {}}])
def test_another_schema_is_error(line):
    with pytest.raises((KeyError, TypeError)):
        Metrics().update(line)
