"""The configuration file of `neuron-monitor`: which groups of metrics are reported, of which processes, how often.

The format is the real tool's (Neuron docs, Neuron Monitor User Guide). Unlike there, a key or a group that does not
exist is refused, with all other problems of the file.

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

from ..errors import ConfigError, nearest, refusal
from ..plain_json import parse_json

RUNTIME_METRICS = ("neuroncore_counters", "memory_used", "neuron_runtime_vcpu_usage", "execution_stats")
"""Groups of each process."""
SYSTEM_METRICS = ("vcpu_usage", "memory_info", "neuron_hw_counters")
"""Groups of the instance."""
DEFAULT_PERIOD_S = 5.0
"""Where the file names none."""
MIN_PERIOD_S = 0.1
"""Processes tell their state once a second, so that less shows nothing more."""

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PERIOD = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metric:
    """One group of metrics."""

    type: str
    """A name of `RUNTIME_METRICS` or `SYSTEM_METRICS`."""
    period_s: float
    """Time between two reports of it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeFilter:
    """Which groups are reported of the processes whose tags match."""

    tag_filter: re.Pattern[str]
    """Searched for in the tag of a process."""
    metrics: tuple[Metric, ...]
    """What is reported of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """What is reported. A process is reported by the first filter that matches it."""

    neuron_runtimes: tuple[RuntimeFilter, ...]
    """Of processes."""
    system_metrics: tuple[Metric, ...]
    """Of the instance."""


DEFAULT_CONFIG = MonitorConfig(
    neuron_runtimes=(
        RuntimeFilter(
            tag_filter=re.compile(".*"),
            metrics=tuple(Metric(type=name, period_s=DEFAULT_PERIOD_S) for name in RUNTIME_METRICS),
        ),
    ),
    system_metrics=tuple(Metric(type=name, period_s=DEFAULT_PERIOD_S) for name in SYSTEM_METRICS),
)
"""Everything, every 5 seconds: what the real tool does without a file."""


def read_config(path: Path) -> MonitorConfig:
    """Read a file.

    Raises:
        ConfigError: it cannot be read or is no JSON, or with every problem in it.
    """
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            refusal(asked=f"--config-file {path}", found=str(error), why="it says what to report", do="name a file")
        ) from error
    except ValueError as error:  # no JSON, or no UTF-8
        raise ConfigError(
            refusal(
                asked=f"--config-file {path}",
                found=f"no JSON: {error}",
                why="the file is a JSON object",
                do='write it like {"period": "1s", "system_metrics": [{"type": "memory_info"}]}',
            )
        ) from error
    return parse_config(found, str(path))


def parse_config(found: Any, name: str) -> MonitorConfig:
    """Check the content of a file.

    Args:
        found: the content, parsed.
        name: of the file, for messages.

    Raises:
        ConfigError: every problem in it, a line each.
    """
    reader = _Reader(name)
    config = reader.config(found)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    return config


class _Reader:
    """Reads what it can, and keeps the problems."""

    def __init__(self, name: str) -> None:
        self.problems: list[str] = []
        self._name = name

    def config(self, found: Any) -> MonitorConfig:
        fields = self._fields(found, "", ("period", "neuron_runtimes", "system_metrics"))
        period_s = self._period(fields, "", DEFAULT_PERIOD_S)
        runtimes = []
        for place, item in self._items(fields, "", "neuron_runtimes"):
            runtime = self._fields(item, place, ("period", "tag_filter", "metrics"))
            own_s = self._period(runtime, place, period_s)
            tag = self._pattern(runtime, place)
            runtimes.append(RuntimeFilter(tag_filter=tag, metrics=self._metrics(runtime, place, "metrics", own_s)))
        system = self._metrics(fields, "", "system_metrics", period_s)
        if not self.problems and not system and not any(runtime.metrics for runtime in runtimes):
            self._problem(
                "no group of metrics",
                "nothing to report",
                "a report is due when a group is",
                "list some under neuron_runtimes or system_metrics",
            )
        return MonitorConfig(neuron_runtimes=tuple(runtimes), system_metrics=system)

    def _metrics(self, fields: dict[str, Any], above: str, key: str, period_s: float) -> tuple[Metric, ...]:
        known = SYSTEM_METRICS if key == "system_metrics" else RUNTIME_METRICS
        metrics: dict[str, Metric] = {}
        for place, item in self._items(fields, above, key):
            metric = self._fields(item, place, ("period", "type"))
            own_s = self._period(metric, place, period_s)
            kind = str(metric.get("type"))
            if kind not in known:
                self._problem(
                    f"{place}.type={json.dumps(metric.get('type'))}",
                    f"no such group{nearest(kind, known)}",
                    f"the groups there are {', '.join(known)}",
                    "name one of these",
                )
            elif kind in metrics:
                self._problem(f"{place}.type={kind}", "it is there twice", "a group has one period", "leave one out")
            else:
                metrics[kind] = Metric(type=kind, period_s=own_s)
        return tuple(metrics.values())

    def _items(self, fields: dict[str, Any], above: str, key: str) -> list[tuple[str, Any]]:
        place = f"{above}.{key}" if above else key
        items = fields.get(key, [])
        if not isinstance(items, list):
            self._problem(place, f"{_kind(items)}", "it is a list of objects", "put it in brackets")
            return []
        return [(f"{place}[{index}]", item) for index, item in enumerate(items)]

    def _fields(self, found: Any, place: str, known: Collection[str]) -> dict[str, Any]:
        if not isinstance(found, dict):
            self._problem(place or "the file", _kind(found), "it is an object", f"give it some of {', '.join(known)}")
            return {}
        for key in found:
            if key not in known:
                self._problem(
                    f"{place}.{key}" if place else key,
                    f"no such key{nearest(key, known)}",
                    f"the keys there are {', '.join(known)}",
                    "correct or remove it",
                )
        return found

    def _period(self, fields: dict[str, Any], place: str, default_s: float) -> float:
        text = fields.get("period")
        if text is None:
            return default_s
        seconds = 0.0
        if isinstance(text, str) and _PERIOD.fullmatch(text):
            seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
        if not MIN_PERIOD_S <= seconds < float("inf"):
            self._problem(
                f"{place}.period={json.dumps(text)}" if place else f"period={json.dumps(text)}",
                f"no period of {MIN_PERIOD_S:g} s or more",
                "it is the time between two reports",
                'write it like "500ms", "1s" or "1m30s"',
            )
        return seconds

    def _pattern(self, fields: dict[str, Any], place: str) -> re.Pattern[str]:
        text = fields.get("tag_filter", ".*")
        try:
            return re.compile(text)
        except (re.error, TypeError) as error:
            self._problem(
                f"{place}.tag_filter={json.dumps(text)}",
                f"no regular expression: {error}",
                "it is searched for in the tags of processes",
                'write it like "chat.*"',
            )
            return re.compile("")

    def _problem(self, what: str, found: str, why: str, do: str) -> None:
        self.problems.append(refusal(asked=f"{self._name}: {what}", found=found, why=why, do=do))


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
