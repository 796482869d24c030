"""The configuration file of neuron-monitor: the documented example, defaults, and every problem at once."""

from __future__ import annotations

import json

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.tools import Metric, monitor_config
from optimum_neuron.tools.monitor_config import DEFAULT_CONFIG, parse_config, read_config
from tests.raising import raises
from tests.tools import conftest

EVERYTHING = {
    **conftest.EVERYTHING,
    "system_metrics": [{"type": "vcpu_usage"}, {"type": "memory_info"}, {"period": "2s", "type": "neuron_hw_counters"}],
}
"""All groups, one of them with its own period, as in the real tool's documentation."""


def problems(content):
    """The lines of the error by place."""
    with pytest.raises(ConfigError) as error:
        parse_config(content, "m.json")
    return dict(zip(error.value.details["places"], str(error.value).splitlines(), strict=True))


def test_documented_example():
    config = parse_config(EVERYTHING, "m.json")
    (runtime,) = config.neuron_runtimes
    assert runtime.tag_filter.search("anything")
    assert runtime.metrics == tuple(Metric(type=name, period_s=1.0) for name in monitor_config.RUNTIME_METRICS)
    assert [(metric.type, metric.period_s) for metric in config.system_metrics] == [
        ("vcpu_usage", 1.0), ("memory_info", 1.0), ("neuron_hw_counters", 2.0),
    ]  # fmt: skip


def test_without_file_everything_is_reported_every_five_seconds():
    (runtime,) = DEFAULT_CONFIG.neuron_runtimes
    assert [metric.type for metric in runtime.metrics] == list(monitor_config.RUNTIME_METRICS)
    assert [metric.type for metric in DEFAULT_CONFIG.system_metrics] == list(monitor_config.SYSTEM_METRICS)
    assert {metric.period_s for metric in (*runtime.metrics, *DEFAULT_CONFIG.system_metrics)} == {5.0}


def test_period_applies_to_nested_groups():
    content = {
        "neuron_runtimes": [
            {"period": "1m30s", "metrics": [{"type": "memory_used"}, {"type": "execution_stats", "period": "500ms"}]},
            {"tag_filter": "^chat", "metrics": [{"type": "memory_used"}]},
        ]
    }
    first, second = parse_config(content, "m.json").neuron_runtimes
    assert [metric.period_s for metric in first.metrics] == [90.0, 0.5]
    assert second.metrics[0].period_s == 5.0 and not second.tag_filter.search("my chat")


EMPTY = [{}, {"period": "1s"}, {"neuron_runtimes": [{"metrics": []}], "system_metrics": []}]


@pytest.mark.parametrize("content", [*EMPTY, None, [], 7, "period", True])
def test_file_without_metrics_is_error(content):
    assert list(problems(content)) == [""]


NO_PERIODS = ["", "1", "s", "1 s", "0s", "-1s", "1d", "1s2", "0.01s", 1, True, [], "9" * 400 + "s", "\u0661s"]


@pytest.mark.parametrize("period", NO_PERIODS)
def test_wrong_period_is_error(period):
    assert list(problems({"period": period})) == ["period"]


def test_all_problems_are_reported_with_nearest_names():
    content = {
        "perod": "1s",
        "neuron_runtimes": [
            {"tag_filter": "(", "metric": []},
            {"metrics": [{"type": "memory_use"}, {"type": "vcpu_usage"}, 7, {"type": "memory_used", "period": "x"}]},
            [],
        ],
        "system_metrics": [{"type": "memory_info"}, {"type": "memory_info"}, {"tpe": "vcpu_usage"}],
    }
    lines = problems(content)
    assert sorted(lines) == sorted([
        "perod", "neuron_runtimes[0].metric", "neuron_runtimes[0].tag_filter",
        "neuron_runtimes[1].metrics[0].type", "neuron_runtimes[1].metrics[1].type",
        "neuron_runtimes[1].metrics[2]", "neuron_runtimes[1].metrics[2].type",
        "neuron_runtimes[1].metrics[3].period", "neuron_runtimes[2]",
        "system_metrics[1].type", "system_metrics[2].tpe", "system_metrics[2].type",
    ])  # fmt: skip
    text = "\n".join(lines.values())
    for name in ("period", "metrics", "memory_used", "type"):
        assert f"did you mean '{name}'" in text


@pytest.mark.parametrize("key", ["neuron_runtimes", "system_metrics"])
@pytest.mark.parametrize("value", [{}, "x", None, 3])
def test_non_list_value_is_an_error(key, value):
    (problem,) = problems({key: value}).items()
    assert problem[0] == key and "list" in problem[1]


def test_unreadable_files_are_errors(tmp_path):
    for path, kind in ((tmp_path / "missing.json", "FileNotFoundError"), (tmp_path, "IsADirectoryError")):
        with raises(ConfigError, path=str(path), error=kind):
            read_config(path)
    for content in (b"{", b"\xff\xfe", b"", b'{"period": "1s"} {}'):
        (tmp_path / "bad.json").write_bytes(content)
        with raises(ConfigError, path=str(tmp_path / "bad.json")) as error:
            read_config(tmp_path / "bad.json")
        assert error.value.details["error"] in ("JSONDecodeError", "UnicodeDecodeError", "ValueError")


def test_file_is_read(tmp_path):
    (tmp_path / "m.json").write_text(json.dumps(EVERYTHING))
    assert read_config(tmp_path / "m.json") == parse_config(EVERYTHING, "")
