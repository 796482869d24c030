"""Counters and metrics of the device "xla", with torch_xla's names and report.

>>> from optimum_neuron.xla import metrics
>>> metrics.increment_counter("Documented", 2)
>>> metrics.counter_value("Documented")
2
>>> metrics.clear_counters()
>>> metrics.counter_value("Documented") is None
True
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

Unit = Literal["time", "bytes", "value"]
"""Of a metric's samples: nanoseconds, bytes, or plain numbers."""

MOST_SAMPLES = 1024
"""Samples that a metric keeps; its totals count all."""
PERCENTILES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
SHORT_COUNTERS = ("CachedCompile", "MarkStep", "DynamoSyncInputExecuteTime")
"""Counters of a short report, besides those of operators that ran on the host."""
SHORT_METRICS = (
    *("CompileTime", "ExecuteTime", "ExecuteReplicatedTime"),
    *("TransferToDeviceTime", "TransferFromDeviceTime"),
)
"""Metrics of a short report."""
DEVICE_PREFIX = "xla::"
"""Prefix of counters of operators on the device. On the host, the prefix is that of the library, such as `aten::`."""


@dataclasses.dataclass(kw_only=True)
class _Metric:
    unit: Unit
    num_samples: int = 0
    total: float = 0.0
    samples: collections.deque[tuple[float, float]] = dataclasses.field(
        default_factory=lambda: collections.deque(maxlen=MOST_SAMPLES)
    )


_lock = threading.RLock()
_counters: dict[str, int] = {}
_metrics: dict[str, _Metric] = {}
_refreshes: list[Callable[[], None]] = []
_sources: list[tuple[Callable[[], Mapping[str, int]], Callable[[], None]]] = []


def increment_counter(name: str, value: int = 1) -> None:
    """Add to a counter, which begins at 0."""
    with _lock:
        _counters[name] = _counters.get(name, 0) + value


def add_sample(name: str, value: float, unit: Unit = "value", *, count: int = 1) -> None:
    """Add a sample to a metric: nanoseconds for "time", bytes for "bytes"; `count` samples if `value` is their sum."""
    with _lock:
        metric = _metrics.setdefault(name, _Metric(unit=unit))
        metric.num_samples += count
        metric.total += value
        metric.samples.append((time.time(), value / count))


def add_source(read: Callable[[], Mapping[str, int]], clear: Callable[[], None]) -> None:
    """Add counters that are counted elsewhere, such as those of operators in C++."""
    _sources.append((read, clear))


def add_refresh(refresh: Callable[[], None]) -> None:
    """Call a function before metrics are read, which adds what was measured elsewhere."""
    _refreshes.append(refresh)


def _refresh() -> None:
    for refresh in _refreshes:
        refresh()


def _all_counters() -> dict[str, int]:
    _refresh()
    with _lock:
        counters = dict(_counters)
    for read, _ in _sources:
        for name, value in read().items():
            counters[name] = counters.get(name, 0) + value
    return counters


def counter_names() -> list[str]:
    """Names of the counters, sorted."""
    return sorted(_all_counters())


def counter_value(name: str) -> int | None:
    """The value of a counter, or None if it was never counted."""
    return _all_counters().get(name)


def metric_names() -> list[str]:
    """Names of the metrics, sorted."""
    _refresh()
    with _lock:
        return sorted(_metrics)


def metric_data(name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
    """Number of samples of a metric, their sum, and the latest with their times in seconds; None for no metric."""
    _refresh()
    with _lock:
        metric = _metrics.get(name)
        return None if metric is None else (metric.num_samples, metric.total, list(metric.samples))


def executed_fallback_ops() -> list[str]:
    """Operators that read values on the host or ran there."""
    return [name for name in counter_names() if "::" in name and not name.startswith(DEVICE_PREFIX)]


def clear_counters() -> None:
    """Forget all counters."""
    _refresh()
    with _lock:
        _counters.clear()
    for _, clear in _sources:
        clear()


def clear_metrics() -> None:
    """Forget all metrics."""
    _refresh()
    with _lock:
        _metrics.clear()


def clear_all() -> None:
    """Forget all counters and metrics."""
    clear_counters()
    clear_metrics()


def metrics_report() -> str:
    """All metrics and counters as text, as torch_xla writes them."""
    return _report(metric_names(), counter_names())


def short_metrics_report(counter_names: Iterable[str] | None = None, metric_names: Iterable[str] | None = None) -> str:
    """The same for some of them.

    Args:
        counter_names: counters; without any, `SHORT_COUNTERS`. Those of operators that ran on the host are added.
        metric_names: metrics; without any, `SHORT_METRICS`.
    """
    counters = list(counter_names or SHORT_COUNTERS)
    host = [name for name in executed_fallback_ops() if name not in counters]
    return _report(list(metric_names or SHORT_METRICS), [*counters, *host])


def _report(metrics: Iterable[str], counters: Iterable[str]) -> str:
    with _lock:
        known = {name: dataclasses.replace(metric, samples=metric.samples.copy()) for name, metric in _metrics.items()}
    values = _all_counters()
    lines = [line for name in metrics if name in known for line in _metric_lines(name, known[name])]
    for name in counters:
        if name in values:
            lines += [f"Counter: {name}", f"  Value: {values[name]}"]
    return "".join(f"{line}\n" for line in lines)


def _metric_lines(name: str, metric: _Metric) -> list[str]:
    values = sorted(value for _, value in metric.samples)
    lines = [
        f"Metric: {name}",
        f"  TotalSamples: {metric.num_samples}",
        f"  Accumulator: {_text(metric.total, metric)}",
    ]
    span_s = metric.samples[-1][0] - metric.samples[0][0] if len(values) > 1 else 0.0
    if span_s > 0:
        if metric.unit != "value":
            lines.append(f"  ValueRate: {_text(sum(values) / span_s, metric)} / second")
        lines.append(f"  Rate: {len(values) / span_s:g} / second")
    at = (values[min(int(part * len(values)), len(values) - 1)] for part in PERCENTILES)
    shown = zip(PERCENTILES, at, strict=True)
    lines.append("  Percentiles: " + "; ".join(f"{part * 100:.0f}%={_text(value, metric)}" for part, value in shown))
    return lines


def _text(value: float, metric: _Metric) -> str:
    texts = {"time": _time_text, "bytes": _bytes_text, "value": lambda number: f"{number:.2f}"}
    return texts[metric.unit](value)


def _time_text(nanoseconds: float) -> str:
    """Parts of a duration from the largest that is not 0 down to microseconds, for example "04ms508.171us"."""
    parts = (("d", 86_400_000_000_000, 2), ("h", 3_600_000_000_000, 2), ("m", 60_000_000_000, 2), ("s", 10**9, 2))
    text, left = "", nanoseconds
    for suffix, size, digits in (*parts, ("ms", 10**6, 3)):
        count = int(left // size)
        left -= count * size
        if count or text:
            text += f"{count:0{digits}d}{suffix}"
    return f"{text}{left / 1000:07.3f}us"


def _bytes_text(num_bytes: float) -> str:
    powers = ("B", "KB", "MB", "GB", "TB", "PB")
    index = max(bisect.bisect_right([1024**power for power in range(len(powers))], num_bytes) - 1, 0)
    return f"{num_bytes / 1024**index:.2f}{powers[index]}"
