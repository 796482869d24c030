"""Files of measurements to runs: the format follows from the content.

runs = read_measurements("results.csv")
runs = read_measurements("result.json", model="meta-llama/Llama-3.1-8B", options={"instance": "inf2.48xlarge"})
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ...errors import ConfigError
from ...files.plain_json import parse_json
from .measured import MeasuredRun
from .neuron_tools import neuron_monitor, neuron_profile
from .servers import LAYOUTS
from .tables import read_table

Graph = Literal["prefill", "decode", "device"]
_FORMATS = ("CSV", *(name for name, _, _ in LAYOUTS), "neuron-profile summary-json", "neuron-monitor")


def read_measurements(
    path: str | Path, *, model: Any = None, options: Mapping[str, Any] | None = None, graph: Graph | None = None
) -> list[MeasuredRun]:
    """Read the runs of a file.

    Args:
        path: a CSV table; a result of `vllm bench`, GenAI-Perf, or LLMPerf; a summary of neuron-profile; reports of
            neuron-monitor.
        model: model of all runs, where the file has none.
        options: options of an estimate for all runs, such as `instance` and `batch_size`.
        graph: graph that a file of neuron-profile or neuron-monitor is of.

    Raises:
        ConfigError: the file is of none of these formats, or a value of it is not possible.
    """
    path, options = Path(path), {} if options is None else options
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        message = f"The measurements of {path} cannot be read: {reason}."
        raise ConfigError(message, hint="Pass a CSV or JSON file.", option="file", value=str(path)) from error
    if path.suffix.lower() == ".csv":
        runs = read_table(text, path, model=model, options=options)
    else:
        try:
            runs = _json_runs(_documents(text), path, model=model, options=options, graph=graph)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            message = f"The measurements of {path} cannot be read: {error}."
            hint = f"Formats are {', '.join(_FORMATS)}."
            raise ConfigError(message, hint=hint, option="file", value=str(path)) from error
    if not runs or not any(run.values for run in runs):
        message = f"{path} has no measured values."
        raise ConfigError(message, hint="Pass a file with at least one.", option="file", value=str(path))
    if graph is not None and not any(name in run.values for run in runs for name in (f"{graph}_ms",)):
        message = f"graph={graph} has no effect on {path}, which is no profile of one graph."
        raise ConfigError(message, hint="Remove it.", option="graph", value=graph)
    return runs


def _documents(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects of a text: one, an array, or one a line."""
    try:
        whole = parse_json(text)
    except ValueError:
        whole = [parse_json(line) for line in text.splitlines() if line.strip()]
    found = whole if isinstance(whole, list) else [whole]
    if not found or not all(isinstance(one, dict) for one in found):
        raise ValueError("it holds no JSON objects")
    return found


def _json_runs(
    documents: list[dict[str, Any]], path: Path, *, model: Any, options: Mapping[str, Any], graph: Graph | None
) -> list[MeasuredRun]:
    if any("neuron_runtime_data" in one for one in documents):
        return [neuron_monitor(documents, path, model=model, options=options, graph=graph)]
    runs = []
    for one in documents:
        reader = next((read for _, keys, read in LAYOUTS if keys <= one.keys()), None)
        if reader is not None:
            runs.append(reader(one, path, model=model, options=options))
        elif "total_time" in str(one)[:100_000]:
            runs.append(neuron_profile(one, path, model=model, options=options, graph=graph))
        else:
            raise ValueError(f"the keys {', '.join(list(one)[:6])} belong to no known format")
    if missing := next((run for run in runs if run.model is None), None):
        message = f"{missing.origin} does not say which model it is of."
        raise ConfigError(message, hint="Pass --model.", option="model", origin=missing.origin)
    return runs
