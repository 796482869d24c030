"""The configuration file of `neuron-monitor`: which groups of metrics are reported, of which processes, how often.

The format is the real tool's (Neuron docs, Neuron Monitor User Guide). Unlike there, a key or a group that does not
exist is an error, reported with all other problems of the file.

    >>> from optimum_neuron.tools.monitor_config import parse_config
    >>> config = parse_config({"period": "2s", "system_metrics": [{"type": "memory_info"}]}, "monitor.json")
    >>> [(metric.type, metric.period_s) for metric in config.system_metrics]
    [('memory_info', 2.0)]
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..errors import ConfigError, nearest
from ..files.plain_json import parse_json

RUNTIME_METRICS = ("neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats")
"""Groups of each process."""
SYSTEM_METRICS = ("vcpu_usage", "memory_info", "neuron_hw_counters")
"""Groups of the instance."""
DEFAULT_PERIOD_S = 5.0
"""Period of groups without one in the file."""
MIN_PERIOD_S = 0.1
"""Lower limit; processes write their status once a second, so a shorter period shows nothing more."""

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERIOD = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One group of metrics."""

    type: str
    """A name of `RUNTIME_METRICS` or `SYSTEM_METRICS`."""
    period_s: float
    """Time between two reports of the group."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeFilter:
    """Groups to report for processes whose tags match."""

    tag_filter: re.Pattern[str]
    """Searched for in the tag of a process."""
    metrics: tuple[Metric, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """Groups to report. The first filter that matches a process applies to it."""

    neuron_runtimes: tuple[RuntimeFilter, ...]
    system_metrics: tuple[Metric, ...]


DEFAULT_CONFIG = MonitorConfig(
    neuron_runtimes=(
        RuntimeFilter(
            tag_filter=re.compile(".*"),
            metrics=tuple(Metric(type=name, period_s=DEFAULT_PERIOD_S) for name in RUNTIME_METRICS),
        ),
    ),
    system_metrics=tuple(Metric(type=name, period_s=DEFAULT_PERIOD_S) for name in SYSTEM_METRICS),
)
"""Every group every 5 seconds, as the real tool without a file."""


def read_config(path: Path) -> MonitorConfig:
    """Read a file."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"Cannot read the --config-file {path}: {error.strerror}."
        raise ConfigError(message, hint="Pass a file.", path=str(path), error=type(error).__name__) from error
    except ValueError as error:  # no JSON, or no UTF-8
        hint = 'Write it like {"period": "1s", "system_metrics": [{"type": "memory_info"}]}.'
        message = f"The --config-file {path} is not JSON: {error}."
        raise ConfigError(message, hint=hint, path=str(path), error=type(error).__name__) from error
    return parse_config(content, str(path))


def parse_config(content: object, name: str) -> MonitorConfig:
    """Check the parsed JSON of a file of that name."""
    reader = _Reader(name)
    config = reader.config(content)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems.values()), file=name, places=list(reader.problems))
    return config


class _Reader:
    """Parser that collects the problems of a file by place."""

    def __init__(self, name: str) -> None:
        self.problems: dict[str, str] = {}
        self._name = name

    def config(self, content: object) -> MonitorConfig:
        fields = self._fields(content, "", ("period", "neuron_runtimes", "system_metrics"))
        period_s = self._period(fields, "", DEFAULT_PERIOD_S)
        runtimes = []
        for place, item in self._items(fields, "", "neuron_runtimes"):
            runtime = self._fields(item, place, ("period", "tag_filter", "metrics"))
            metrics = self._metrics(runtime, place, "metrics", self._period(runtime, place, period_s))
            runtimes.append(RuntimeFilter(tag_filter=self._pattern(runtime, place), metrics=metrics))
        system = self._metrics(fields, "", "system_metrics", period_s)
        if not self.problems and not system and not any(runtime.metrics for runtime in runtimes):
            self._problem("", "is empty: list metric groups under neuron_runtimes or system_metrics")
        return MonitorConfig(neuron_runtimes=tuple(runtimes), system_metrics=system)

    def _metrics(self, fields: dict[str, Any], above: str, key: str, period_s: float) -> tuple[Metric, ...]:
        known = SYSTEM_METRICS if key == "system_metrics" else RUNTIME_METRICS
        metrics: dict[str, Metric] = {}
        for place, item in self._items(fields, above, key):
            metric = self._fields(item, place, ("period", "type"))
            metric_period_s = self._period(metric, place, period_s)
            kind = str(metric.get("type"))
            if kind not in known:
                text = json.dumps(metric.get("type"))
                self._problem(f"{place}.type", f"is {text}{_not_known(kind, known)}")
            elif kind in metrics:
                self._problem(f"{place}.type", f"is {kind} a second time: remove one of them")
            else:
                metrics[kind] = Metric(type=kind, period_s=metric_period_s)
        return tuple(metrics.values())

    def _items(self, fields: dict[str, Any], above: str, key: str) -> list[tuple[str, Any]]:
        place = _below(above, key)
        items = fields.get(key, [])
        if not isinstance(items, list):
            self._problem(place, f"is {_kind(items)}, not a list of objects: put it in brackets")
            return []
        return [(f"{place}[{index}]", item) for index, item in enumerate(items)]

    def _fields(self, item: object, place: str, known: Collection[str]) -> dict[str, Any]:
        if not isinstance(item, dict):
            self._problem(place, f"is {_kind(item)}, not an object with {', '.join(known)}")
            return {}
        for key in item:
            if key not in known:
                self._problem(_below(place, key), f"is an unknown key{_not_known(key, known)}")
        return item

    def _period(self, fields: dict[str, Any], place: str, default_s: float) -> float:
        text = fields.get("period")
        if text is None:
            return default_s
        seconds = 0.0
        if isinstance(text, str) and _PERIOD.fullmatch(text):
            seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
        if not MIN_PERIOD_S <= seconds < float("inf"):
            problem = f'is {json.dumps(text)}: pass {MIN_PERIOD_S:g} s or more, like "500ms", "1s" or "1m30s"'
            self._problem(_below(place, "period"), problem)
        return seconds

    def _pattern(self, fields: dict[str, Any], place: str) -> re.Pattern[str]:
        text = fields.get("tag_filter", ".*")
        try:
            return re.compile(text)
        except (re.error, TypeError) as error:
            problem = f'is {json.dumps(text)}, not a regular expression such as "chat.*": {error}'
            self._problem(_below(place, "tag_filter"), problem)
            return re.compile("")

    def _problem(self, place: str, text: str) -> None:
        self.problems[place] = f"{self._name}: {place or 'the file'} {text}."


def _below(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _not_known(name: str, known: Collection[str]) -> str:
    return f"{nearest(name, known) or '.'} Choose from {', '.join(known)}"


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
