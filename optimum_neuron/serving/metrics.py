"""Metrics in Prometheus' form: vLLM's names where the meaning is the same, so that dashboards work.

Names that begin with `vllm:` are times and counts of this host. Names that begin with `neuron_simulated_` are times of
the simulated device, and `neuron_` other facts about it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ..batching import SimulatedTimes
from .generator import Finished

if TYPE_CHECKING:
    from .models import Registry

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)

_HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": ("Time to the first token", _SECONDS),
    "vllm:request_time_per_output_token_seconds": ("Time per token after the first", _SECONDS),
    "vllm:e2e_request_latency_seconds": ("Time to the last token", _SECONDS),
    "vllm:request_prompt_tokens": ("Tokens of a prompt", _TOKENS),
    "vllm:request_generation_tokens": ("Tokens of an answer", _TOKENS),
    "neuron_simulated_time_to_first_token_seconds": ("Simulated time to the first token", _SECONDS),
    "neuron_simulated_request_time_per_output_token_seconds": ("Simulated time per token after the first", _SECONDS),
    "neuron_simulated_e2e_request_latency_seconds": ("Simulated time to the last token", _SECONDS),
}

_COUNTERS = {
    "vllm:prompt_tokens": ("prompt_tokens_total", "Tokens of prompts"),
    "vllm:generation_tokens": ("answer_tokens_total", "Tokens of answers"),
    "vllm:prefix_cache_queries": ("prompt_tokens_total", "Tokens of prompts that could be shared"),
    "vllm:prefix_cache_hits": ("shared_tokens_total", "Tokens of prompts that an earlier request had computed"),
    "vllm:num_preemptions": ("preemptions_total", "Preempted requests"),
    "vllm:spec_decode_num_draft_tokens": ("candidate_tokens_total", "Tokens that drafts proposed"),
    "vllm:spec_decode_num_accepted_tokens": ("accepted_tokens_total", "Proposed tokens that were accepted"),
    "neuron_prefill_chunks": ("chunks_total", "Chunks of prompts that were read"),
    "neuron_decode_steps": ("steps_total", "Decode steps"),
    "neuron_simulated_busy_seconds": ("simulated_seconds_total", "Simulated time in which the device worked"),
    "neuron_untimed_calls": ("untimed_calls_total", "Calls whose simulated time cannot be computed"),
}
"""Metric to the engine's counter, and its help."""


class Metrics:
    """Counts of one deployment."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._histograms = {
            name: Histogram(name, text, ["model_name"], buckets=buckets, registry=self._registry)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        labels = ["model_name", "finished_reason"]
        self._finished = Counter("vllm:request_success", "Requests that ended", labels, registry=self._registry)
        labels = ["handler", "method", "status"]
        self._http = Counter("http_requests", "HTTP requests", labels, registry=self._registry)
        self._http_times = Histogram(
            "http_request_duration_seconds",
            "Time of HTTP requests",
            ["handler"],
            buckets=_SECONDS,
            registry=self._registry,
        )

    def watch(self, models: Registry) -> None:
        """Report the engines of these models."""
        self._registry.register(_Engines(models))

    def note_finished(self, model_name: str, facts: Finished) -> None:
        """Count an answer that is over."""
        self._finished.labels(model_name, facts.reason).inc()
        if facts.reason == "abort":
            return
        first_s, simulated = facts.first_token_s or facts.end_s, facts.simulated or SimulatedTimes()
        has_tokens = facts.num_tokens is not None
        values = {
            "vllm:time_to_first_token_seconds": first_s - facts.arrival_s if has_tokens else None,
            "vllm:request_time_per_output_token_seconds": _tpot(facts.end_s - first_s, facts.num_tokens or 0),
            "vllm:e2e_request_latency_seconds": facts.end_s - facts.arrival_s,
            "vllm:request_prompt_tokens": facts.num_prompt,
            "vllm:request_generation_tokens": facts.num_tokens,
            "neuron_simulated_time_to_first_token_seconds": simulated.ttft_s,
            "neuron_simulated_request_time_per_output_token_seconds": simulated.tpot_s,
            "neuron_simulated_e2e_request_latency_seconds": simulated.latency_s,
        }
        for name, value in values.items():
            if value is not None:
                self._histograms[name].labels(model_name).observe(value)

    def note_http(self, handler: str, method: str, status: int, seconds: float) -> None:
        """Count an HTTP request."""
        self._http.labels(handler, method, str(status)).inc()
        self._http_times.labels(handler).observe(seconds)

    def text(self) -> bytes:
        """Return the page that Prometheus reads."""
        return generate_latest(self._registry)


def _tpot(seconds: float, num_tokens: int) -> float | None:
    """Time per token after the first; unknown for an answer that came at once."""
    return seconds / (num_tokens - 1) if num_tokens > 1 and seconds > 0 else None


class _Engines:
    """State of the engines at the time of a scrape."""

    def __init__(self, models: Registry) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Yield metrics of all loaded models, and of the simulated cores."""
        replicas = {model.spec.name: model.replicas for model in self._models.models if model.replicas}
        engines = {
            model.spec.name: [replica.manager.engine for replica in model.generators]
            for model in self._models.models
            if model.generators
        }
        yield from _queues(replicas)
        yield _cache_usage(engines)
        for name, (counter, text) in _COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=["model_name"])
            for model_name, of_model in engines.items():
                family.add_metric([model_name], sum(getattr(engine.counters, counter) for engine in of_model))
            yield family
        yield from _host_code(engines)
        yield from _cores(self._models)


def _queues(replicas: Mapping[str, Sequence[Any]]) -> Iterable[Metric]:
    running = GaugeMetricFamily("vllm:num_requests_running", "Requests that run", labels=["model_name"])
    waiting = GaugeMetricFamily("vllm:num_requests_waiting", "Requests that wait", labels=["model_name"])
    for name, of_model in replicas.items():
        running.add_metric([name], sum(replica.num_running for replica in of_model))
        waiting.add_metric([name], sum(replica.num_waiting for replica in of_model))
    return running, waiting


def _cache_usage(engines: Mapping[str, Sequence[Any]]) -> Metric:
    usage = GaugeMetricFamily("vllm:kv_cache_usage_perc", "Used part of the KV cache, 0 to 1", labels=["model_name"])
    for name, of_model in engines.items():
        pools = [engine.pool for engine in of_model]
        usage.add_metric([name], sum(pool.num_used for pool in pools) / sum(pool.num_usable for pool in pools))
    return usage


def _host_code(engines: Mapping[str, Sequence[Any]]) -> Iterable[Metric]:
    """The host code that new requests run on, with its number of replicas, and requests that end on earlier one."""
    serving = GaugeMetricFamily("neuron_host_code", "Host code of new requests", labels=["model_name", "levels"])
    earlier = GaugeMetricFamily(
        "neuron_requests_on_earlier_host_code", "Requests that end on the code they began with", labels=["model_name"]
    )
    for name, of_model in engines.items():
        for levels, number in collections.Counter(engine.runner.levels for engine in of_model).items():
            serving.add_metric([name, levels], number)
        earlier.add_metric([name], sum(engine.num_on_earlier_code for engine in of_model))
    return serving, earlier


def _cores(models: Registry) -> Iterator[Metric]:
    """Memory of the simulated cores that the models are on."""
    labels = ["neuroncore", "category"]
    used = GaugeMetricFamily("neuron_hbm_used_bytes", "Used memory of a simulated core", labels=labels)
    size = GaugeMetricFamily("neuron_hbm_size_bytes", "Memory of a simulated core", labels=["neuroncore"])
    loaded = [replica.ledgers for model in models.models for replica in model.replicas]
    for core, ledger in sorted({ledger.core_id: ledger for ledgers in loaded for ledger in ledgers}.items()):
        size.add_metric([str(core)], ledger.capacity_bytes)
        for category, num_bytes in ledger.used_by_category().items():
            used.add_metric([str(core), category], num_bytes)
    yield used
    yield size
