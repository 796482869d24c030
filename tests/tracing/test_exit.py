"""A process that ends while threads work on a traced model: they end before the interpreter does.

Python ends daemon threads by force when they ask for the interpreter's lock at exit. Inside C++ code of torch that is
`terminate called without an active exception`, in few runs. These tests force the moment: a thread is in C++ code,
without the lock, while the main thread ends. All ends are those of forks of one process, which only imports.
"""

from __future__ import annotations

import json

import pytest

from tests.warm import SEPARATE_INSTANCE

pytestmark = pytest.mark.full(days=2, by="file")

IMPORTS = f"""
import atexit, contextlib, datetime, json, os, sys, threading

os.environ["OPTIMUM_NEURON_INSTANCE"] = {SEPARATE_INSTANCE!r}

def print_threads():
    print("threads:", [thread.name for thread in threading.enumerate()])

atexit.register(print_threads)  # the first one registered is the last one called

import torch
import optimum_neuron.device
from optimum_neuron.runtime import publisher, status
from optimum_neuron.simulator import clock
from optimum_neuron.tracing import DataParallel, session, trace
from optimum_neuron.tracing.script import neuron_models, session_of
"""

BEGIN = """
inside = threading.Event()

def stay_in_torch():
    inside.set()
    with contextlib.suppress(RuntimeError):
        torch.distributed.HashStore().wait(["never set"], datetime.timedelta(seconds=1))
    print("returned from torch")

x = torch.rand(4, 4)
model = trace(torch.nn.Linear(4, 2), x, compiler_args="-O1")
traced = session_of(neuron_models(model)[0])
"""

IN_BACKGROUND = """
traced.unload()
traced._host = None
session.lower = lower
traced.load_in_background()
inside.wait()
"""

LOADING = """
real = session.lower

def lower(*arguments, **options):
    stay_in_torch()
    return real(*arguments, **options)
"""

COMPILING = """
def lower(program, **options):
    inside.set()
    options["on_start"](2)
    threading.main_thread().join()
    options["on_done"]("the first body")
    print("went on")
"""

CLOSED_POOL = """
import concurrent.futures

def lower(*arguments, **options):
    inside.set()
    threading.main_thread().join()
    concurrent.futures.ThreadPoolExecutor().submit(int)
"""

WATCHED = """
real = clock.call_cost

def call_cost(track, graph):
    stay_in_torch()
    return real(track, graph)

clock.call_cost = call_cost
model(x)
status.watch(*publisher.PUBLISHER._instances)
publisher.PUBLISHER.wake()
inside.wait()
"""

PARALLEL = """
parallel = DataParallel(model, device_ids=[0, 1])
parallel(torch.rand(9, 4))
"""

PROGRAMS = {
    "background load": LOADING + IN_BACKGROUND,
    "background compile": COMPILING + IN_BACKGROUND,
    "closed pool": CLOSED_POOL + IN_BACKGROUND + "print('end')",
    "status": WATCHED,
    "threads of cores": PARALLEL,
}

IN_FORKS = """
torch.export.export(torch.nn.Linear(4, 2), (torch.rand(4, 4),))  # imports what every fork would import
ends = {}
for name, program in json.loads(sys.argv[1]).items():
    read, write = os.pipe()
    if os.fork() == 0:
        os.dup2(write, 1)
        os.close(write)
        exec(program)
        break
    os.close(write)
    with os.fdopen(read) as stream:
        ends[name] = stream.read().splitlines()
    assert os.wait()[1] == 0, name
else:
    print(json.dumps(ends))
    sys.stdout.flush()
    os._exit(0)
"""
"""A fork leaves the loop and comes to the end of the program, as any other program."""


@pytest.fixture(scope="module")
def ends(python) -> dict[str, list[str]]:
    """What each program prints until its process has ended."""
    programs = {name: BEGIN + program for name, program in PROGRAMS.items()}
    return json.loads(python(IMPORTS + IN_FORKS, json.dumps(programs)))


def test_process_exit_waits_for_background_load(ends):
    assert ends["background load"] == ["returned from torch", "threads: ['MainThread']"]


def test_no_background_compile_after_exit(ends):
    assert ends["background compile"] == ["threads: ['MainThread']"]


def test_closed_pools_end_background_loading(ends):
    assert ends["closed pool"] == ["end", "threads: ['MainThread']"]


def test_end_of_process_waits_for_its_status(ends):
    assert ends["status"] == ["returned from torch", "threads: ['MainThread']"]


def test_threads_of_cores_end_with_process(ends):
    assert ends["threads of cores"] == ["threads: ['MainThread']"]
