"""A home of its own for each test, and another process that runs a tiny model on a simulated core."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from optimum_neuron import env

ROOT = Path(__file__).parents[2]

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


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    for name in env.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))


class Running:
    """A process that runs a model until it is told to end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        clean = {name: value for name, value in os.environ.items() if name not in env.VARIABLES}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNING],
            text=True,
            env={
                **clean,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
                "OPTIMUM_NEURON_HOME": str(home),
                "NEURON_PROCESS_TAG": "my_app",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    @property
    def pid(self) -> int:
        return self.process.pid


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
