"""Summaries of AWS' tools: `neuron-profile view --output-format summary-json` and reports of `neuron-monitor`.

A profile is of one graph on one core; its engines are compared too. `neuron-monitor` prints a report a line; its device
latency is that of the graph that ran most, a decode step of a model that generates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from .measured import DEVICE, MeasuredRun, require_batch, with_options

ENGINES = {"tensor": ("tensor",), "vector": ("vector", "scalar", "gpsimd"), "dma": ("dma",), "link": ("cc_op",)}
"""Engines of an estimate, with the names of the profile's; of several, the busiest is compared."""


def neuron_profile(
    data: Mapping[str, Any], path: Path, *, model: Any, options: Mapping[str, Any], graph: str | None
) -> MeasuredRun:
    """Read the summary of a profile, or the JSON of a whole one, whose `summary` is the same."""
    summary: Any = data.get("summary", data)
    if isinstance(summary, list):
        summary = summary[0] if summary else {}
    while isinstance(summary, dict) and len(summary) == 1 and "total_time" not in summary:
        (summary,) = summary.values()  # neuron-explorer puts each profile under its name
    if not isinstance(summary, dict) or "total_time" not in summary:
        message = f"{path} has no total_time of a profile."
        hint = "Write it with `neuron-profile view --output-format summary-json`."
        raise ConfigError(message, hint=hint, option="total_time", origin=str(path))
    total_ms = 1e3 * float(summary["total_time"])
    engines = {
        name: max(shares) * total_ms / 100 for name, parts in ENGINES.items() if (shares := _shares(summary, parts))
    }
    read = summary.get("hbm_read_bytes")
    values = {_metric(graph, path): total_ms}
    return _run(path, model, options, values, engines=engines, hbm_bytes=None if read is None else float(read))


def neuron_monitor(
    reports: Sequence[Mapping[str, Any]], path: Path, *, model: Any, options: Mapping[str, Any], graph: str | None
) -> MeasuredRun:
    """Read reports of neuron-monitor: the median device latency, by the executions of each period."""
    found: list[tuple[float, float]] = []
    for report in reports:
        for runtime in report.get("neuron_runtime_data") or ():
            stats = ((runtime.get("report") or {}).get("execution_stats")) or {}
            latency = (stats.get("latency_stats") or {}).get("device_latency") or {}
            completed = (stats.get("execution_summary") or {}).get("completed", 0)
            if completed and "p50" in latency:
                found.append((1e3 * float(latency["p50"]), float(completed)))
    if not found:
        message = f"{path} has no report with completed executions."
        hint = "Run neuron-monitor while the model runs, with the metric group execution_stats."
        raise ConfigError(message, hint=hint, option="execution_stats", origin=str(path))
    found.sort()
    half, seen, median = sum(count for _, count in found) / 2, 0.0, found[-1][0]
    for latency_ms, count in found:
        seen += count
        if seen >= half:
            median = latency_ms
            break
    return _run(path, model, options, {_metric(graph, path): median})


def _run(path: Path, model: Any, options: Mapping[str, Any], values: dict[str, float], **parts: Any) -> MeasuredRun:
    if model is None:
        message = f"{path} does not say which model it is of."
        raise ConfigError(message, hint="Pass --model.", option="model", origin=str(path))
    every = with_options({}, options, origin=str(path))
    require_batch(every, model=model, origin=str(path))
    return MeasuredRun(origin=str(path), model=model, options=every, values=values, **parts)


def _shares(summary: Mapping[str, Any], names: Sequence[str]) -> list[float]:
    """Return the percentages of the time in which engines were active."""
    suffixes = ("_engine_active_time_percent", "_active_time_percent")
    keys = [name + suffix for name in names for suffix in suffixes]
    return [float(summary[key]) for key in keys if summary.get(key) is not None]


def _metric(graph: str | None, path: Path) -> str:
    if graph is not None and f"{graph}_ms" in DEVICE:
        return f"{graph}_ms"
    message = f"{path} is of one graph, and which one is not said."
    hint = "Pass --graph prefill or --graph decode; of a single-pass model, --graph device."
    raise ConfigError(message, hint=hint, option="graph", value=graph, origin=str(path))
