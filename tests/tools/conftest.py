"""A separate home for each test, statuses, and another process that runs a tiny model on a simulated core."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from optimum_neuron.base import env
from optimum_neuron.runtime import CoreStatus, GraphStatus, ModelStatus, Status
from optimum_neuron.tools.monitor_config import RUNTIME_METRICS, SYSTEM_METRICS

ROOT = Path(__file__).parents[2]

EVERYTHING = {
    "period": "1s",
    "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": name} for name in RUNTIME_METRICS]}],
    "system_metrics": [{"type": name} for name in SYSTEM_METRICS],
}
"""A configuration of neuron-monitor with every group."""

RUNNING = textwrap.dedent("""
    import sys, threading, time
    import torch
    from optimum_neuron.tracing import trace

    model, x = trace(torch.nn.Linear(64, 64), torch.ones(4, 64), compiler_args="-O1"), torch.ones(4, 64)
    threading.Thread(target=lambda: (sys.stdin.read(), stop.append(1)), daemon=True).start()
    stop = []
    print("ready", flush=True)
    while not stop:
        model(x)
        time.sleep(0.002)
""")


def graph(num_calls, host_us=0.0, *, name="g", device_us=2000.0, launch_us=500.0, flops=1e9):
    """Calls of one entry point; without `device_us` their simulated time is not known yet."""
    times = {"device_us": device_us, "launch_us": launch_us, "flops": flops}
    known = times if device_us is not None else dict.fromkeys(times)
    return GraphStatus(name=name, num_calls=num_calls, host_us=float(host_us), **known)


def status(
    at_s, *graphs, pid=7, cores=(0,), hbm=None, model_id=1, name="bert", core_ids=None, running_us=0.0, **fields
):
    """Status of a process with one model."""
    core_ids = cores if core_ids is None else core_ids
    model = ModelStatus(model_id=model_id, name=name, core_ids=core_ids, running_us=running_us, graphs=graphs)
    held = tuple(CoreStatus(core_id=core, capacity_bytes=2**34, hbm_bytes=hbm or {}) for core in cores)
    return Status(
        **{"pid": pid, "tag": "chat", "at_s": at_s, "cores": held, "models": (model,), "errors": {}, **fields}
    )


@pytest.fixture
def no_process_can_be_read(monkeypatch):
    def denied(pid):
        raise psutil.AccessDenied(pid)

    monkeypatch.setattr("psutil.Process", denied)


@pytest.fixture
def mistyped(capsys):
    """Return a function that runs a tool with an invalid command line, and returns its error."""

    def run(main, *words):
        with pytest.raises(SystemExit) as excinfo:
            main(list(words))
        assert excinfo.value.code == 2
        return capsys.readouterr().err

    return run


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    for name in env.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))


class Running:
    """A process that runs a model until told to end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        environ = {name: value for name, value in os.environ.items() if name not in env.VARIABLES}
        environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        environ |= {"OPTIMUM_NEURON_HOME": str(home), "NEURON_PROCESS_TAG": "my_app"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", RUNNING], text=True, env=environ, **pipes)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "ready\n"


@pytest.fixture(scope="package")
def running_process(tmp_path_factory):
    running = Running(tmp_path_factory.mktemp("running"))
    yield running
    running.process.communicate("")
    assert running.process.returncode == 0


@pytest.fixture
def running(running_process, monkeypatch):
    """The process, in whose home the test is."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(running_process.home))
    return running_process
