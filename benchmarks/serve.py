"""The server against its engine: 100 clients through HTTP, and the same requests given to the engine directly.

Both are in one process and take turns. The clients are another process (`benchmarks/load.py`) on the same cores; one of
the ratios adds the part that they take to the server's. `--soak MINUTES` lets the clients go on, with some that leave,
and shows memory and the slowest requests of each minute. After the comparison, another server starts without compiled
host code (`cold_serve.py`). It runs only when it is named; `--quick` serves a tiny random model.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.footprint import footprint

from . import contenders
from .cold_serve import cold_rows
from .harness import Row, Settings, in_turn, ratio, rows_of, seconds
from .load import percentile

NUM_CLIENTS, NUM_REQUESTS, NUM_PROMPT, NUM_NEW = 100, 200, 32, 32
LEAVING = 0.05
"""Part of the clients of a soak that leave."""


def run(settings: Settings) -> list[Row]:
    """Serve a model, and measure."""
    from optimum_neuron.serving import Deployment, ServeOptions, model_specs, running_server

    options = ServeOptions(port=0, max_queue_size=2 * NUM_REQUESTS)
    with tempfile.TemporaryDirectory() as work:
        source, how = tiny_model(Path(work)) if settings.quick else _real(settings)
        deployment = Deployment(model_specs((source,), options, how), options)
        with running_server(deployment) as url:
            model = deployment.registry.models[0]
            if model.error is not None:
                raise model.error
            if settings.soak_minutes:
                return _soak(url, settings.soak_minutes)
            rows = _compare(url, model.backend, settings)
        return rows + cold_rows(source, {**how, "optlevel": "2"}, _window, settings.rounds)


def tiny_model(work: Path) -> tuple[str, dict[str, Any]]:
    """Return the folder of a tiny random model, and the options of its export."""
    from tests.tiny import NUM_BYTE_TOKENS, save_tiny, save_tokenizer

    folder = save_tiny(work / "tiny", "llama", vocab_size=NUM_BYTE_TOKENS, max_position_embeddings=128)
    return str(save_tokenizer(folder)), {"sequence_length": 128, "optlevel": "1"}


def _real(settings: Settings) -> tuple[str, dict[str, Any]]:
    how = {"sequence_length": 256, "torch_dtype": "bfloat16", "prefill_chunk_size": 64, "wait_for_host_code": True}
    return str(contenders.folder(settings.model)), {**how, "disable_validation": True}


def _compare(url: str, generator: Any, settings: Settings) -> list[Row]:
    """The engine and the server in turn, with the same prompts."""
    loads: list[dict[str, Any]] = []
    parts: list[float] = []

    def through_http() -> float:
        before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        loads.append(_load(url, "--num_prompts", NUM_REQUESTS, "--tokens"))
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        parts.append(cpu_s / (time.perf_counter() - start_s) / (os.cpu_count() or 1))
        assert loads[-1]["completed"] == NUM_REQUESTS, loads[-1]["statuses"]
        return float(loads[-1]["output_throughput"])

    def engine() -> float:
        prompts = [prompt for prompt, _ in loads[0]["answers"]] if loads else _first_prompts(url)
        return NUM_REQUESTS * NUM_NEW / seconds(lambda: _answers(generator, prompts))

    rates = in_turn({"through HTTP": through_http, "engine": engine}, settings.rounds)
    expected = _answers(generator, [prompt for prompt, _ in loads[0]["answers"]])
    different = sum(tokens != expected[tuple(prompt)] for load in loads for prompt, tokens in load["answers"])
    note = f"{NUM_CLIENTS} clients, {NUM_NEW} tokens after prompts of {NUM_PROMPT}, streamed"
    rows = rows_of(rates, "token/s", note=note)
    rows.append(ratio("server over engine", rates["through HTTP"], rates["engine"], note="with the clients' work"))
    alone = [rate / (1 - part) for rate, part in zip(rates["through HTTP"], parts[-settings.rounds :], strict=True)]
    rows.append(ratio("server over engine, clients apart", alone, rates["engine"], note="bar: 0.95"))
    rows += rows_of({"processor time of the clients": [100 * part for part in parts]}, "% of cores")
    for name, bar in (("ttft", ""), ("tpot", ""), ("e2el", ""), ("health", "bar: 50")):
        for percent in (50, 99):
            values = [load[f"p{percent}_{name}_ms"] for load in loads[1:]]
            what = f"{name}, {percent}th percentile"
            rows += rows_of({what: values}, "ms", note=bar if percent == 99 else "")
    return [*rows, Row(what="answers that differ from the engine's", value=different, unit="", note="bar: 0")]


def _window(url: str) -> dict[str, Any]:
    """A few requests, so that host code that becomes ready is noticed soon."""
    return _load(url, "--num_prompts", 8, "--max_concurrency", 4)


def _first_prompts(url: str) -> list[list[int]]:
    return [prompt for prompt, _ in _load(url, "--num_prompts", NUM_REQUESTS, "--tokens")["answers"]]


def _answers(generator: Any, prompts: list[list[int]]) -> dict[tuple[int, ...], list[int]]:
    """Answers of the engine, in whatever order they come."""
    names = {
        generator.manager.add_request(prompt, max_new_tokens=NUM_NEW, do_sample=False, eos_token_id=-1): tuple(prompt)
        for prompt in prompts
    }
    outputs = [generator.manager.get_result() for _ in names]
    return {names[output.request_id]: output.generated_tokens for output in outputs}


def _load(url: str, *options: object) -> dict[str, Any]:
    sizes = ("--max_concurrency", NUM_CLIENTS, "--input_len", NUM_PROMPT, "--output_len", NUM_NEW)
    command = [sys.executable, "-m", "benchmarks.load", "--base_url", url, *map(str, (*sizes, *options))]
    figures: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return figures


def _soak(url: str, minutes: float) -> list[Row]:
    """Clients that go on for minutes; each minute is a row."""
    sizes = ("--max_concurrency", NUM_CLIENTS, "--input_len", NUM_PROMPT, "--output_len", NUM_NEW)
    more = ("--minutes", minutes, "--leaving", LEAVING)
    command = [sys.executable, "-m", "benchmarks.load", "--base_url", url, *map(str, (*sizes, *more))]
    rows: list[Row] = []
    names = ("p99_e2el_ms", "p99_ttft_ms", "p99_health_ms", "resident_mib")
    series: dict[str, list[float]] = {name: [] for name in names}
    last: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = json.loads(line)
            if "minute" not in last:
                break
            last["resident_mib"] = footprint().resident_bytes / 2**20
            for name, values in series.items():
                values.append(last[name])
            shown = ", ".join(f"{name} {values[-1]:.1f}" for name, values in series.items())
            print(f"minute {last['minute']}: {shown}, statuses {last['statuses']}", file=sys.stderr, flush=True)
    later = {name: values[len(values) // 4 :] for name, values in series.items()}
    for name, values in later.items():
        half = len(values) // 2
        early, late = percentile(values[:half], 50), percentile(values[half:], 50)
        rows.append(Row(what=f"{name}, last half over the one before", value=late / early if early else 0.0, unit="x"))
    growth = later["resident_mib"][-1] - later["resident_mib"][0]
    rows.append(Row(what="growth of memory after the first quarter", value=growth, unit="MiB"))
    rows.append(Row(what="completed", value=last["completed"], unit="", note=f"statuses {last['statuses']}"))
    return rows
