"""A server from its cold start to its steady state, and the same server started again.

The store of host code is empty: the server answers operator by operator while its code is compiled in the background,
by another process. Clients send requests all the time, so the code is taken between requests. Processor time is that of
the serving process, without compilers and clients. `serve` has these rows too.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from optimum_neuron.base import env

from .harness import Row, ratio, rows_of

Load = Callable[[str], dict[str, Any]]
"""Sends a window of requests to a URL, and returns their figures."""
PATIENCE_S = 1800.0


def cold_rows(source: str, how: dict[str, Any], load: Load, rounds: int) -> list[Row]:
    """Serve a model without host code, until all requests run on compiled code; then again with it."""
    how = {name: value for name, value in how.items() if name != "wait_for_host_code"}
    with _empty_home():
        cold: list[float] = []
        with _server(source, how) as (url, health):
            start_s, first = time.perf_counter(), health()["host_code"]["serves"]
            while (code := health()["host_code"])["serves"] == first or code["requests_on_earlier"]:
                if time.perf_counter() - start_s > PATIENCE_S:
                    raise TimeoutError(f"The server still runs on {first} code after {PATIENCE_S:.0f} s.")
                cold.append(_cpu_ms(url, load))
            switched_s, levels = time.perf_counter() - start_s, code["serves"]
            steady = [_cpu_ms(url, load) for _ in range(rounds + 1)][1:]
        with _server(source, how) as (url, health):
            assert health()["host_code"]["serves"] == levels, "its code is in the store"
            restarted = [_cpu_ms(url, load) for _ in range(rounds + 1)][1:]
    figures = {"cold": cold, "steady, without a restart": steady, "restarted": restarted}
    rows = [Row(what=f"from {first} to {levels}", value=switched_s, unit="s", note="clients send all the time")]
    rows += rows_of(figures, "ms/token", note="processor time of the server")
    rows.append(ratio("steady over restarted", steady, restarted, note="bar: 1.1"))
    return [*rows, Row(what="cold over steady", value=statistics.median(cold) / statistics.median(steady), unit="x")]


def _cpu_ms(url: str, load: Load) -> float:
    """Processor time of this process for each token of a window."""
    before_s = time.process_time()
    figures = load(url)
    return 1e3 * (time.process_time() - before_s) / float(figures["total_output_tokens"])


@contextlib.contextmanager
def _server(source: str, how: dict[str, Any]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """A server in this process, and a function that returns what its `/health` says of the model."""
    from optimum_neuron.serving import Deployment, ServeOptions, model_specs, running_server

    options = ServeOptions(port=0)
    deployment = Deployment(model_specs((source,), options, how), options)
    with running_server(deployment) as url:
        model = deployment.registry.models[0]
        if model.error is not None:
            raise model.error
        yield url, model.progress


@contextlib.contextmanager
def _empty_home() -> Iterator[None]:
    """No host code is stored inside; checkpoints are."""
    before = os.environ.get("OPTIMUM_NEURON_HOME")
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "checkpoints").symlink_to((env.home() / "checkpoints").absolute())
        os.environ["OPTIMUM_NEURON_HOME"] = home
        try:
            yield
        finally:
            os.environ.pop("OPTIMUM_NEURON_HOME")
            if before is not None:
                os.environ["OPTIMUM_NEURON_HOME"] = before
