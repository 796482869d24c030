"""A real worker process: programs one after the other, one that fails, one that is killed."""

import os
import signal
import threading
import time

import pytest
from torch.nn import functional as F

from optimum_neuron.compiler.lower import Job, background, probe_compiler, probe_cpu
from optimum_neuron.compiler.lower.lower import locate, record_path
from optimum_neuron.compiler.serialize import body_to_dict
from tests import warm
from tests.programs import body_of, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")


def job(root, name, scale=1.0, **changes):
    body = body_to_dict(body_of(lambda x, w: F.linear(x, w) * scale, spec(1, 16), spec(16, 16)))
    record = record_path(name, "inductor", probe_cpu(), root)
    return Job(body=body | changes, level="inductor", record=record)


def running():
    """The worker, while it runs."""
    worker = background._service._worker
    return worker if worker is not None and worker.poll() is None else None


def until(condition):
    """Wait for something to become true, and return it."""
    deadline = time.monotonic() + 120
    while not (result := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert result
    return result


def test_killed_and_failed_workers_are_reported_and_other_programs_compile(tmp_path):
    killed = background.compile_in_background([job(tmp_path, "sub_killed", 7.0)])
    os.kill(until(running).pid, signal.SIGKILL)
    assert killed.wait(60) and "-9" in killed.failures[0] and "-O1" in killed.failures[0]

    broken = job(tmp_path, "sub_broken", nodes=[{"op": "aten.no_such.default", "args": [], "kwargs": {}}])
    first = background.compile_in_background([broken, job(tmp_path, "sub_a", 2.0)])
    second = background.compile_in_background([job(tmp_path, "sub_a", 2.0), job(tmp_path, "sub_b", 3.0)])
    results = []
    second.on_end(lambda: results.append(second.num_done))
    worker = until(running)
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + background.NICENESS
    until(lambda: os.getpriority(os.PRIO_PROCESS, worker.pid) >= min(niceness, 19))
    assert not second.wait(0) and second.wait(240) and first.wait(0)
    assert "aten.no_such.default" in first.failures[0] and first.num_done == 1
    assert second.failures == [] and second.num_done == 2 and results == [2] and second.seconds > 0
    assert all(locate(one.record) for one in second.jobs) and locate(broken.record) is None
    second.on_end(lambda: results.append("late"))
    assert results == [2, "late"]
    until(lambda: worker.poll() is not None)  # nothing is left to do


def test_requests_inside_the_block_begin_after_it(tmp_path):
    until(lambda: running() is None)
    with background.compile_later(), background.compile_later():
        compiling = background.compile_in_background([job(tmp_path, "sub_later", 5.0)])
        assert not compiling.wait(0.5) and running() is None
    assert compiling.wait(120) and compiling.num_done == 1 and not compiling.failures


def test_early_exit_ends_worker_and_keeps_finished_files(tmp_path):
    program = (
        "import sys, time; from pathlib import Path\n"
        "from tests.compiler.lower.test_background import job, background, locate\n"
        "root = Path(sys.argv[1])\n"
        "first = background.compile_in_background([job(root, 'sub_first', 1.5)])\n"
        "second = background.compile_in_background([job(root, 'sub_second', 2.5)])\n"
        "assert first.wait(120) and not second.wait(0)\n"
        "print(background._service._worker.pid)\n"
    )
    result = warm.run("-c", program, str(tmp_path))  # which starts Python for the worker, as users' processes do
    assert result.returncode == 0 and not result.stderr, result.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout), 0)
    assert locate(job(tmp_path, "sub_first").record) is not None


class WatchedPipe:
    """A pipe that notes which threads close it."""

    def __init__(self, pipe):
        self.pipe, self.closers = pipe, []

    def __iter__(self):
        return iter(self.pipe)

    def close(self):
        self.closers.append(threading.current_thread().name)
        self.pipe.close()


def test_only_the_thread_that_reads_a_pipe_closes_it(tmp_path):
    service = background._Service()
    service.submit(background.Compiling([job(tmp_path, "sub_ended", 9.0)]))
    worker = until(lambda: service._worker)
    worker.stdout = pipe = WatchedPipe(worker.stdout)
    service.close()
    assert pipe.closers == ["host code"] and worker.poll() is not None
