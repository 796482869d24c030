"""Latency of a loaded model: percentiles on this machine, and apart from them the estimate of the simulated device."""

from __future__ import annotations

import copy
import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from ..errors import ConfigError, invalid_choice
from .adapter import HuggingFaceGenerationAdapter, no_token
from .application import NeuronBaseForCausalLM

logger = logging.getLogger(__name__)

BENCHMARK_REPORT_PATH = "./benchmark_report.json"
"""File of a report if none is named."""
END_TO_END, CONTEXT, TOKENS = "e2e_model", "context_encoding_model", "token_generation_model"
SPECULATION = "speculation_model"
_TARGETS = {"all": (END_TO_END, CONTEXT, TOKENS), "e2e": (END_TO_END,), "context_encode": (CONTEXT,)}
_TARGETS |= {"token_gen": (TOKENS,), "speculation": (SPECULATION,)}
_PERCENTILES = (50, 90, 95, 99, 100)
_SIMULATED = ("ttft_ms", "tpot_ms", "latency_ms")
"""Quantities of the simulated device, by their names in an estimate."""


class LatencyCollector:
    """Times of calls: `pre_hook` before each, `hook` after it."""

    def __init__(self) -> None:
        self.start, self.latency_list = 0.0, list[float]()

    def pre_hook(self, *args: object) -> None:
        """Note the begin of a call."""
        self.start = time.perf_counter()

    def hook(self, *args: object) -> None:
        """Note its end."""
        self.latency_list.append(time.perf_counter() - self.start)


class Benchmark:
    """Runs a function several times after a warm-up, and collects latencies.

    Args:
        benchmark_func: the function.
        input_param: its keywords, or positional arguments.
        num_runs: how often it runs.
        preprocess_func: called before each run.
        post_warmup_func: called after the warm-up.
    """

    def __init__(
        self,
        benchmark_func: Callable[..., Any],
        input_param: Any,
        num_runs: int = 20,
        preprocess_func: Callable[[], Any] | None = None,
        post_warmup_func: Callable[[], Any] | None = None,
    ) -> None:
        self.benchmark_func, self.input_param, self.num_runs = benchmark_func, input_param, num_runs
        self.preprocess_func, self.post_warmup_func = preprocess_func, post_warmup_func
        self.latency_list: list[float] = []

    def run(self) -> None:
        """Run all; `latency_list` has the seconds of each."""
        self._call()
        if self.post_warmup_func is not None:
            self.post_warmup_func()
        collector = LatencyCollector()
        for _ in range(self.num_runs):
            if self.preprocess_func is not None:
                self.preprocess_func()
            collector.pre_hook()
            self._call()
            collector.hook()
        self.latency_list = collector.latency_list

    def _call(self) -> Any:
        if isinstance(self.input_param, dict):
            return self.benchmark_func(**self.input_param)
        return self.benchmark_func(*self.input_param)


class _TokenTimes:
    """A streamer that notes when each token came; the prompt comes first."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, tokens: torch.Tensor) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Do nothing."""


def generate_report(
    latency_list: Sequence[float], max_length: int, max_batch_size: int, n_runs: int = 20
) -> dict[str, float] | None:
    """Return percentiles in milliseconds, interpolated, and tokens a second; None without latencies.

    Args:
        latency_list: seconds of each run.
        max_length: tokens of a run.
        max_batch_size: its rows.
        n_runs: number of runs.
    """
    if not len(latency_list):
        return None
    seconds = torch.tensor(list(latency_list), dtype=torch.float64)
    report = {f"latency_ms_p{percent}": 1e3 * float(seconds.quantile(percent / 100)) for percent in _PERCENTILES}
    report["latency_ms_avg"] = 1e3 * float(seconds.mean())
    report["throughput"] = n_runs * max_length * max_batch_size / float(seconds.sum())
    return report


def benchmark_sampling(
    model: NeuronBaseForCausalLM,
    draft_model: object = None,
    generation_config: GenerationConfig | None = None,
    target: str | None = None,
    image: bool | None = False,
    num_runs: int = 20,
    benchmark_report_path: str | Path | None = BENCHMARK_REPORT_PATH,
) -> dict[str, Any]:
    """Measure `generate` with prompts of half the compiled length; print and save the report.

    Args:
        model: the loaded model.
        draft_model: proposes tokens.
        generation_config: settings; None: the checkpoint's. No token ends an answer.
        target: "e2e", "context_encode", "token_gen", "speculation" with a draft, or "all", the default.
        image: must be False: these models read text.
        num_runs: how often it runs.
        benchmark_report_path: file of the report; None: it is not saved.

    Returns:
        For each part percentiles of the latency on this machine, and `simulated_device` with the estimate of the
        instance, in milliseconds: a different clock, which must not be compared with them.
    """
    if (target := target or "all") not in _TARGETS:
        raise invalid_choice("target", target, tuple(_TARGETS))
    if image:
        message = f"image={image!r}: these models read text only."
        raise ConfigError(message, hint="Leave it out.", option="image")
    if target == "speculation" and draft_model is None and model.assistant is None:
        message = "target='speculation' needs a draft."
        raise ConfigError(message, hint="Pass draft_model, or another target.", option="target", value=target)
    neuron = model.neuron_config
    num_prompt = min(neuron.max_context_length, neuron.max_length - 1)
    num_prompt = min(num_prompt, max(neuron.max_length // 2, 1))
    num_new, num_rows = neuron.max_length - num_prompt, neuron.batch_size
    ids = torch.zeros(num_rows, num_prompt, dtype=torch.long)
    settings = copy.deepcopy(generation_config or model.compiled.generation_config)
    settings.update(
        eos_token_id=no_token(model), pad_token_id=0, max_new_tokens=num_new, max_length=None, min_new_tokens=None
    )
    options = {} if draft_model is None else {"assistant_model": draft_model}
    adapter, runs = HuggingFaceGenerationAdapter(model), list[tuple[float, _TokenTimes]]()

    def call() -> None:
        times, start = _TokenTimes(), time.perf_counter()
        adapter.generate(
            ids, attention_mask=torch.ones_like(ids), generation_config=settings, streamer=times, **options
        )
        runs.append((start, times))

    print(f"Starting end-to-end benchmark with {num_runs}")
    benchmark = Benchmark(call, {}, num_runs, preprocess_func=model.reset, post_warmup_func=runs.clear)
    benchmark.run()
    first = [times.times[1] - start for start, times in runs]
    later = [b - a for _, times in runs for a, b in zip(times.times[1:], times.times[2:], strict=False)]
    collected = {END_TO_END: (benchmark.latency_list, neuron.max_length), CONTEXT: (first, num_prompt)}
    collected |= dict.fromkeys((TOKENS, SPECULATION), (later, 1))
    report: dict[str, Any] = {
        name: generate_report(values, length, num_rows, len(values))
        for name, (values, length) in collected.items()
        if name in _TARGETS[target] and values
    }
    report["simulated_device"] = _simulated(model, num_prompt, num_new)
    print("Benchmark completed and its result is as following")
    print(json.dumps(report, indent=4))
    if benchmark_report_path is not None:
        Path(benchmark_report_path).write_text(json.dumps(report))
        print(f"Completed saving result to {benchmark_report_path}")
    return report


def _simulated(model: NeuronBaseForCausalLM, num_prompt: int, num_new: int) -> dict[str, Any]:
    """The estimate of the compiled model on its instance."""
    estimate = model.compiled.estimate(input_length=num_prompt, output_length=num_new)
    values = {name: estimate.quantities[name].value for name in _SIMULATED if name in estimate.quantities}
    return {"instance": estimate.instance.value, **values}
