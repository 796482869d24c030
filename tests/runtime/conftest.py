"""Processes that claim cores on request, and small programs on an instance that no other test uses."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from optimum_neuron.base import env
from optimum_neuron.compiler.lower import lower
from optimum_neuron.hardware import INSTANCES, TARGETS
from optimum_neuron.runtime import load_program
from tests.programs import compile_module, weights_of

ROOT = Path(__file__).parents[2]
INSTANCE, TARGET = INSTANCES["trn1.2xlarge"], TARGETS["trn1"]

WORKER = textwrap.dedent("""
    import json, os, subprocess, sys, time
    from optimum_neuron.errors import NeuronError
    from optimum_neuron.hardware import INSTANCES
    from optimum_neuron.runtime.cores import claim_cores, held_cores

    instance, claims = INSTANCES[sys.argv[1]], {}

    def claim(model, num_cores=1):
        claims[model] = claim_cores(instance, model=model, num_cores=num_cores)
        return claims[model].core_ids

    def answer(what, *arguments):
        if what == "claim":
            return claim(*arguments)
        if what == "release":
            return claims.pop(*arguments).release()
        if what == "held":
            return held_cores(instance)
        if what == "sleeper":
            return subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid
        if what == "fork":
            return fork(*arguments)

    def fork(then):
        read, write = os.pipe()
        child = os.fork()
        if child:
            return [child, json.loads(os.read(read, 1000))]
        own_claims = list(claims.values())
        reply = {"held": [claim.held for claim in own_claims]}
        for held_claim in own_claims:
            held_claim.release()
        if then == "claim":
            reply["core_ids"] = claim("child")
        os.write(write, json.dumps(reply).encode())
        if then == "stay":
            os.close(0), os.close(1)
            time.sleep(60)
        sys.exit()  # runs what is registered for exit, unlike multiprocessing

    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        try:
            reply = answer(*json.loads(line))
        except NeuronError as error:
            reply = {"error": type(error).__name__, "message": str(error), "details": error.details}
        print(json.dumps(reply), flush=True)
""")


class Worker:
    """Another process that claims cores on request."""

    def __init__(self, home, instance, variables):
        clean = {name: value for name, value in os.environ.items() if name not in env.VARIABLES}
        environ = {**clean, "PYTHONPATH": str(ROOT), "OPTIMUM_NEURON_HOME": str(home), **variables}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(instance)],
            text=True,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.listen() == "ready"

    @property
    def pid(self):
        return self.process.pid

    def tell(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()

    def listen(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, *what):
        self.tell(*what)
        return self.listen()

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.process.communicate()
        return self.process.returncode


def loader(module, inputs, states=None):
    """Return a function that loads a module: `load_program` without its first arguments."""
    program = compile_module(module, inputs, states=states or {}).program
    weights, host = weights_of(program, module), lower(program, optlevel="1")
    return functools.partial(load_program, program, weights, host, instance=INSTANCE, target=TARGET)


@pytest.fixture
def home(monkeypatch, tmp_path):
    """A home that only this test uses."""
    monkeypatch.setenv("OPTIMUM_NEURON_HOME", str(tmp_path))


@pytest.fixture
def environ(tmp_path):
    return {"OPTIMUM_NEURON_HOME": str(tmp_path)}


@pytest.fixture
def start(tmp_path):
    workers = []

    def start(instance="inf2.xlarge", **variables):
        workers.append(Worker(tmp_path, instance, variables))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.communicate()


@pytest.fixture
def orphans():
    """Processes that outlive the one that started them."""
    pids = []
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def records(tmp_path):
    """Names of the records of claims on an inf2.xlarge."""
    return lambda: sorted(path.name for path in (tmp_path / "cores" / "inf2.xlarge").glob("*.json"))
