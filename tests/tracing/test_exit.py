"""A process that ends while threads work on a traced model: they end before the interpreter does.

Python ends daemon threads by force when they ask for the interpreter's lock at exit. Inside C++ code of torch that is
`terminate called without an active exception`, in few runs. These tests force the moment: a thread is in C++ code,
without the lock, while the main thread ends.
"""

from __future__ import annotations

BEGIN = """
import atexit, contextlib, datetime, threading

def print_threads():
    print("threads:", [thread.name for thread in threading.enumerate()])

atexit.register(print_threads)  # the first one registered is the last one called

import torch
from optimum_neuron.tracing import DataParallel, session, trace
from optimum_neuron.tracing.script import neuron_models, session_of

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


def test_process_exit_waits_for_background_load(python):
    lower = """
real = session.lower

def lower(*arguments, **options):
    stay_in_torch()
    return real(*arguments, **options)
"""
    assert python(BEGIN + lower + IN_BACKGROUND).splitlines() == ["returned from torch", "threads: ['MainThread']"]


def test_no_background_compile_after_exit(python):
    lower = """
def lower(program, **options):
    inside.set()
    options["on_start"](2)
    threading.main_thread().join()
    options["on_done"]("the first body")
    print("went on")
"""
    assert python(BEGIN + lower + IN_BACKGROUND).splitlines() == ["threads: ['MainThread']"]


def test_closed_pools_end_background_loading(python):
    lower = """
import concurrent.futures

def lower(*arguments, **options):
    inside.set()
    threading.main_thread().join()
    concurrent.futures.ThreadPoolExecutor().submit(int)
"""
    assert python(BEGIN + lower + IN_BACKGROUND + "print('end')").splitlines() == ["end", "threads: ['MainThread']"]


def test_end_of_process_waits_for_its_status(python):
    watched = """
from optimum_neuron.runtime import publisher, status
from optimum_neuron.simulator import clock

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
    assert python(BEGIN + watched).splitlines() == ["returned from torch", "threads: ['MainThread']"]


def test_threads_of_cores_end_with_process(python):
    parallel = """
parallel = DataParallel(model, device_ids=[0, 1])
parallel(torch.rand(9, 4))
"""
    assert python(BEGIN + parallel).splitlines() == ["threads: ['MainThread']"]
