"""Results of benchmarks of servers: `vllm bench`, GenAI-Perf, and LLMPerf, each in the layout that it writes.

A client with `max_concurrency` requests at once is `num_clients` of an estimate, and its times are means. These files
do not know the instance or the compiled sizes: those are given for the whole file. They are of one server, which is one
replica unless `data_parallel_size` is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from .measured import MeasuredRun, require_batch, with_options

_TO_MS = {"ms": 1.0, "sec": 1e3, "s": 1e3, "us": 1e-3, "ns": 1e-6}


def _run(
    path: Path, data: Mapping[str, Any], values: Mapping[str, float], own: Mapping[str, Any], given: Mapping[str, Any]
) -> MeasuredRun:
    origin = str(path)
    options = with_options(own, {"data_parallel_size": 1, **given}, origin=origin)
    require_batch(options, model=data["model"], origin=origin)
    return MeasuredRun(origin=origin, model=data["model"], options=options, values=values)


def vllm_serve(data: Mapping[str, Any], path: Path, *, model: Any, options: Mapping[str, Any]) -> MeasuredRun:
    """Read a result of `vllm bench serve --save-result`."""
    completed = _count(data, "completed", path)
    own = {
        "input_length": round(_count(data, "total_input_tokens", path) / completed),
        "output_length": round(_count(data, "total_output_tokens", path) / completed),
        **_load(data.get("max_concurrency"), data.get("request_rate"), path),
    }
    if "num_clients" in own:
        own["num_requests"] = round(completed)
    values = {
        "ttft_ms": data.get("mean_ttft_ms"),
        "tpot_ms": data.get("mean_tpot_ms"),
        "latency_ms": data.get("mean_e2el_ms"),
        "throughput_per_s": data.get("request_throughput"),
        "tokens_per_s": data.get("output_throughput"),
    }
    if "requests_per_s" in own:  # what arrives decides the rates
        values |= {"throughput_per_s": None, "tokens_per_s": None}
    return _run(path, {"model": model or data.get("model_id")}, _given(values), own, options)


def vllm_latency(data: Mapping[str, Any], path: Path, *, model: Any, options: Mapping[str, Any]) -> MeasuredRun:
    """Read a result of `vllm bench latency --output-json`: seconds of a batch, from prompt to last token."""
    if model is None or "output_length" not in options:
        missing = "a model" if model is None else "lengths of prompt and answer"
        message = f"{path} is a result of `vllm bench latency`, which has no {missing}."
        hint = "Pass --model, --input_length, --output_length, and --batch_size of the benchmark."
        raise ConfigError(message, hint=hint, option="output_length", origin=str(path))
    return _run(path, {"model": model}, {"latency_ms": 1e3 * float(data["avg_latency"])}, {}, options)


def vllm_throughput(data: Mapping[str, Any], path: Path, *, model: Any, options: Mapping[str, Any]) -> MeasuredRun:
    """Read a result of `vllm bench throughput --output-json`; its tokens are those of prompts and answers."""
    named = model or data.get("model_id")
    values = {"throughput_per_s": float(data["requests_per_second"])}
    return _run(path, {"model": named}, values, {}, options)


def genai_perf(data: Mapping[str, Any], path: Path, *, model: Any, options: Mapping[str, Any]) -> MeasuredRun:
    """Read `profile_export_genai_perf.json`, whose options are in groups or, in releases before, in one.

    Without `--streaming`, its time to first token is that of the whole answer: neither it nor gaps are read.
    """
    config = data.get("input_config") or {}
    stimulus = (config.get("perf_analyzer") or {}).get("stimulus") or config
    names = config.get("model_names") or config.get("model") or [None]
    own = {
        "input_length": _mean(data, "input_sequence_length", path, rounded=True),
        "output_length": _mean(data, "output_sequence_length", path, rounded=True),
        **_load(stimulus.get("concurrency"), stimulus.get("request_rate"), path),
    }
    values = {
        "ttft_ms": _mean(data, "time_to_first_token", path),
        "tpot_ms": _mean(data, "inter_token_latency", path),
        "latency_ms": _mean(data, "request_latency", path),
    }
    if values["ttft_ms"] == values["latency_ms"]:
        values |= {"ttft_ms": None, "tpot_ms": None}
    if "requests_per_s" not in own:
        values["throughput_per_s"] = _mean(data, "request_throughput", path)
        values["tokens_per_s"] = _mean(data, "output_token_throughput", path)
    return _run(path, {"model": model or names[0]}, _given(values), _given(own), options)


def llmperf(data: Mapping[str, Any], path: Path, *, model: Any, options: Mapping[str, Any]) -> MeasuredRun:
    """Read a `_summary.json` of LLMPerf, whose times are in seconds.

    Its `inter_token_latency_s` includes the first token, so the time per output token is that of the tokens behind it.
    """

    def mean(name: str) -> float | None:
        value = data.get(f"results_{name}_mean")
        return None if value is None else float(value)

    lengths = {"input_length": mean("number_input_tokens"), "output_length": mean("number_output_tokens")}
    own = {name: round(value) for name, value in _given(lengths).items()}
    own["num_clients"] = _count(data, "num_concurrent_requests", path)
    first, whole, tokens = mean("ttft_s"), mean("end_to_end_latency_s"), lengths["output_length"]
    times = {"ttft_ms": first, "latency_ms": whole}
    if first is not None and whole is not None and tokens is not None and tokens > 1:
        times["tpot_ms"] = (whole - first) / (tokens - 1)
    values = {name: 1e3 * value for name, value in times.items() if value is not None}
    if (rate := data.get("results_mean_output_throughput_token_per_s")) is not None:
        values["tokens_per_s"] = float(rate)
    return _run(path, {"model": model or data.get("model")}, values, own, options)


Reader = Callable[..., MeasuredRun]
LAYOUTS: tuple[tuple[str, frozenset[str], Reader], ...] = (
    ("vllm bench serve", frozenset({"completed", "total_input_tokens", "request_throughput"}), vllm_serve),
    ("vllm bench latency", frozenset({"avg_latency", "latencies"}), vllm_latency),
    ("vllm bench throughput", frozenset({"elapsed_time", "requests_per_second"}), vllm_throughput),
    ("genai-perf", frozenset({"input_config", "request_latency"}), genai_perf),
    ("llmperf", frozenset({"num_concurrent_requests", "mean_input_tokens"}), llmperf),
)
"""Name, keys that only this format has together, and reader."""


def _load(concurrency: Any, rate: Any, path: Path) -> dict[str, Any]:
    """Return the load of a benchmark as options of an estimate."""
    if concurrency is not None:
        return {"num_clients": int(concurrency)}
    try:
        per_s = float(rate)
    except (TypeError, ValueError):
        per_s = float("inf")
    if per_s == float("inf"):
        message = f"{path} has all requests at once, which is neither a rate nor a number of clients."
        hint = "Measure with --max-concurrency N or --request-rate X."
        raise ConfigError(message, hint=hint, option="max_concurrency", value=None, origin=str(path))
    return {"requests_per_s": per_s}


def _mean(data: Mapping[str, Any], name: str, path: Path, *, rounded: bool = False) -> float | None:
    """Return the mean of a metric of GenAI-Perf; of a time, in milliseconds."""
    metric = data.get(name)
    if not isinstance(metric, dict) or "avg" not in metric:
        return None
    value, unit = float(metric["avg"]), str(metric.get("unit", "ms"))
    if rounded:
        return round(value)
    if unit in _TO_MS:
        return _TO_MS[unit] * value
    if unit.endswith(("/sec", "/s")):
        return value
    message = f"{path}: the unit {unit!r} of {name} is not known."
    raise ConfigError(message, hint=f"Known units: {', '.join(_TO_MS)}.", option=name, value=unit, origin=str(path))


def _count(data: Mapping[str, Any], name: str, path: Path) -> int:
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1:
        message = f"{path}: {name}={value!r}: no request was measured."
        raise ConfigError(message, hint="Measure at least one request.", option=name, value=value, origin=str(path))
    return int(value)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
