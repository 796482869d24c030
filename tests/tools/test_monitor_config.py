"""The configuration file of neuron-monitor: the documented example, defaults, and every problem at once."""

from __future__ import annotations

import json

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.tools.monitor_config import (
    DEFAULT_CONFIG,
    RUNTIME_METRICS,
    SYSTEM_METRICS,
    Metric,
    parse_config,
    read_config,
)
from tests.tools import conftest

EVERYTHING = {
    **conftest.EVERYTHING,
    "system_metrics": [{"type": "vcpu_usage"}, {"type": "memory_info"}, {"period": "2s", "type": "neuron_hw_counters"}],
}
"""All groups, one of them with a period of its own, as the real tool's documentation shows it."""


def problems(found):
    with pytest.raises(ConfigError) as refused:
        parse_config(found, "m.json")
    return str(refused.value).split("\n")


def test_the_documented_example():
    config = parse_config(EVERYTHING, "m.json")
    (runtime,) = config.neuron_runtimes
    assert runtime.tag_filter.search("anything")
    assert runtime.metrics == tuple(Metric(type=name, period_s=1.0) for name in RUNTIME_METRICS)
    assert [(metric.type, metric.period_s) for metric in config.system_metrics] == [
        ("vcpu_usage", 1.0), ("memory_info", 1.0), ("neuron_hw_counters", 2.0),
    ]  # fmt: skip


def test_without_a_file_everything_is_reported_every_five_seconds():
    (runtime,) = DEFAULT_CONFIG.neuron_runtimes
    assert [metric.type for metric in runtime.metrics] == list(RUNTIME_METRICS)
    assert [metric.type for metric in DEFAULT_CONFIG.system_metrics] == list(SYSTEM_METRICS)
    assert {metric.period_s for metric in (*runtime.metrics, *DEFAULT_CONFIG.system_metrics)} == {5.0}


def test_a_period_counts_for_everything_below_it():
    found = {
        "neuron_runtimes": [
            {"period": "1m30s", "metrics": [{"type": "memory_used"}, {"type": "execution_stats", "period": "500ms"}]},
            {"tag_filter": "^chat", "metrics": [{"type": "memory_used"}]},
        ]
    }
    first, second = parse_config(found, "m.json").neuron_runtimes
    assert [metric.period_s for metric in first.metrics] == [90.0, 0.5]
    assert second.metrics[0].period_s == 5.0 and not second.tag_filter.search("my chat")


@pytest.mark.parametrize("found", [{}, {"period": "1s"}, {"neuron_runtimes": [{"metrics": []}], "system_metrics": []}])
def test_a_file_that_asks_for_nothing_is_refused(found):
    (problem,) = problems(found)
    assert problem.startswith("m.json: no group of metrics: nothing to report")


NO_PERIODS = ["", "1", "s", "1 s", "0s", "-1s", "1d", "1s2", "0.01s", 1, True, [], "9" * 400 + "s", "\u0661s"]


@pytest.mark.parametrize("period", NO_PERIODS)
def test_what_is_no_period_is_refused(period):
    (problem,) = problems({"period": period})
    assert problem.startswith("m.json: period=") and '"1m30s"' in problem


def test_all_problems_are_told_at_once_with_the_nearest_names():
    found = {
        "perod": "1s",
        "neuron_runtimes": [
            {"tag_filter": "(", "metric": []},
            {"metrics": [{"type": "memory_use"}, {"type": "vcpu_usage"}, 7, {"type": "memory_used", "period": "x"}]},
            [],
        ],
        "system_metrics": [{"type": "memory_info"}, {"type": "memory_info"}, {"tpe": "vcpu_usage"}],
    }
    told = problems(found)
    assert [problem.split(": ")[1] for problem in told] == [
        "perod", "neuron_runtimes[0].metric", 'neuron_runtimes[0].tag_filter="("',
        'neuron_runtimes[1].metrics[0].type="memory_use"', 'neuron_runtimes[1].metrics[1].type="vcpu_usage"',
        "neuron_runtimes[1].metrics[2]", 'neuron_runtimes[1].metrics[2].type=null',
        'neuron_runtimes[1].metrics[3].period="x"', "neuron_runtimes[2]",
        "system_metrics[1].type=memory_info", "system_metrics[2].tpe", "system_metrics[2].type=null",
    ]  # fmt: skip
    text = "\n".join(told)
    assert "did you mean 'period'" in text and "did you mean 'metrics'" in text
    assert "did you mean 'memory_used'" in text and "did you mean 'type'" in text


@pytest.mark.parametrize("found", [None, [], 7, "period", True])
def test_what_is_no_object_is_refused(found):
    (problem,) = problems(found)
    assert "m.json: the file" in problem


@pytest.mark.parametrize("key", ["neuron_runtimes", "system_metrics"])
@pytest.mark.parametrize("value", [{}, "x", None, 3])
def test_what_is_no_list_is_refused(key, value):
    (problem,) = problems({key: value})
    assert f"m.json: {key}: " in problem and "list" in problem


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_config(tmp_path / "missing.json")
    with pytest.raises(ConfigError, match="directory"):
        read_config(tmp_path)
    for content in (b"{", b"\xff\xfe", b"", b'{"period": "1s"} {}'):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(ConfigError, match="no JSON"):
            read_config(tmp_path / "bad.json")


def test_a_file_is_read(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(EVERYTHING))
    assert read_config(tmp_path / "m.json") == parse_config(EVERYTHING, "")
