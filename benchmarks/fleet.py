"""A fleet whose replicas are killed: which requests are answered, and what a broken stream says.

It runs `optimum-cli neuron serve --ray` with two replicas of a tiny random model on a local Ray cluster. Clients send
whole requests and streams while one replica after the other gets `kill -9`; `--quick` kills one. It needs the extra
`ray`.
"""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import psutil

from .harness import Row, Settings
from .serve import tiny_model

NUM_CLIENTS, NUM_KILLS, NUM_NEW = 6, 4, 64
PAUSE_S = 2.0
"""Time between a new replica and the next kill."""
PATIENCE_S = 300.0
TITLE = "ray::ServeReplica:optimum-neuron:"


def run(settings: Settings) -> list[Row]:
    """Serve, kill, and count."""
    with tempfile.TemporaryDirectory() as work:
        source, options = tiny_model(Path(work))
        words = [f"--{name} {value}" for name, value in options.items() if name != "optlevel"]
        command = f"{Path(sys.executable).parent}/optimum-cli neuron serve {source} -O1 {' '.join(words)}"
        command += " --served_model_name tiny --ray --num_replicas 2 --port 18437 --quiet"
        environment = {**os.environ, "OPTIMUM_NEURON_HOME": f"{work}/home", "RAY_USAGE_STATS_ENABLED": "0"}
        started = time.perf_counter()
        with subprocess.Popen(command.split(), stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            ready_s = time.perf_counter() - started
            try:
                rows = _kill_replicas(url, 1 if settings.quick else NUM_KILLS)
            finally:
                process.send_signal(signal.SIGTERM)
        note = "a local Ray cluster, two replicas, -O1"
        return [Row(what="until the fleet answers", value=ready_s, unit="s", note=note), *rows]


def _kill_replicas(url: str, num_kills: int) -> list[Row]:
    statuses: collections.Counter[str] = collections.Counter()
    ended = threading.Event()
    clients = [
        threading.Thread(target=_client, args=(url, number % 2 == 1, statuses, ended)) for number in range(NUM_CLIENTS)
    ]
    for client in clients:
        client.start()
    killed, replaced_s = 0, []
    while killed < num_kills:
        time.sleep(PAUSE_S)
        replicas = _replicas()
        replicas[killed % len(replicas)].kill()
        killed, began = killed + 1, time.perf_counter()
        while _health(url).get("RUNNING") != 2 or len(_replicas()) != 2:
            assert time.perf_counter() - began < PATIENCE_S, "Ray starts no new replica"
            time.sleep(0.2)
        replaced_s.append(time.perf_counter() - began)
        print(f"  killed {killed}: {dict(statuses)}", file=sys.stderr)
    ended.set()
    for client in clients:
        client.join()
    whole = sum(count for name, count in statuses.items() if name.startswith("whole"))
    streams = sum(count for name, count in statuses.items() if name.startswith("stream"))
    silent = statuses["stream broken"]
    return [
        Row(what="killed replicas", value=killed, unit=""),
        Row(what="until there is a new one", value=sorted(replaced_s)[killed // 2], unit="s", note="median"),
        Row(what="whole requests", value=whole, unit=""),
        Row(what="whole requests without an answer", value=whole - statuses["whole 200"], unit="", note="bar: 0"),
        Row(what="streams", value=streams, unit=""),
        Row(what="streams that ended with replica_died", value=statuses["stream replica_died"], unit=""),
        Row(what="streams that broke without saying so", value=silent, unit="", note="bar: 0"),
    ]


def _client(url: str, streams: bool, statuses: collections.Counter[str], ended: threading.Event) -> None:
    """Send requests one after the other."""
    body = {"model": "tiny", "prompt": "abc", "max_tokens": NUM_NEW, "ignore_eos": True, "stream": streams}
    with httpx.Client(timeout=PATIENCE_S) as client:
        while not ended.is_set():
            try:
                if streams:
                    statuses[f"stream {_stream(client, url, body)}"] += 1
                else:
                    statuses[f"whole {client.post(f'{url}/v1/completions', json=body).status_code}"] += 1
            except httpx.HTTPError as error:
                statuses["stream broken" if streams else f"whole {type(error).__name__}"] += 1


def _stream(client: httpx.Client, url: str, body: dict[str, object]) -> str:
    """Return how a stream ended."""
    last: dict[str, object] = {}
    with client.stream("POST", f"{url}/v1/completions", json=body) as response:
        if response.status_code != 200:
            return str(response.status_code)
        for line in response.iter_lines():
            if line.startswith("data: {"):
                last = json.loads(line.removeprefix("data: "))
    if "error" in last:
        return str(last["error"]["code"])  # type: ignore[index]
    choices = last.get("choices")
    return "200" if choices and choices[0]["finish_reason"] else "broken"  # type: ignore[index]


def _replicas() -> list[psutil.Process]:
    """Processes of model replicas; the ingress is none of them."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or ())
        if TITLE in title and f"{TITLE}ingress" not in title:
            found.append(process)
    return found


def _health(url: str) -> dict[str, int]:
    report = httpx.get(f"{url}/health", timeout=PATIENCE_S).json()
    return dict(report["models"].get("tiny", {}).get("replicas", {}))
