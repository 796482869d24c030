"""Real worker processes: several bodies at once, a body that fails, a worker that is killed."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from torch.nn import functional as F

from optimum_neuron.compiler.lower.choose import probe_compiler
from optimum_neuron.compiler.lower.pool import Job, LoweringPool
from optimum_neuron.compiler.serial import body_to_dict
from optimum_neuron.errors import LoweringError
from tests.programs import body_of, spec

pytestmark = pytest.mark.skipif(probe_compiler() is None, reason="no C++ compiler on this machine")


def job(folder, name, scale=1.0, **changes):
    body = body_to_dict(body_of(lambda x, w: F.linear(x, w) * scale, spec(1, 16), spec(16, 16)))
    return Job(body=body | changes, level="inductor", output=folder / f"{name}.pt2")


def test_jobs_are_shared_out_and_one_that_fails_is_reported_with_the_others_done(tmp_path):
    broken = job(tmp_path, "sub_broken", nodes=[{"op": "aten.no_such.default", "args": [], "kwargs": {}}])
    jobs = [broken, job(tmp_path, "sub_a", 2.0), job(tmp_path, "sub_b", 3.0)]
    done = []
    with LoweringPool(2) as pool:
        pids = [worker.pid for worker in pool._workers]
        with pytest.raises(LoweringError) as refused:
            pool.run(jobs, done.append)
        assert "aten.no_such.default" in str(refused.value) and "sub_a" not in str(refused.value)
        assert sorted(finished.output.name for finished in done) == ["sub_a.pt2", "sub_b.pt2"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["sub_a.pt2", "sub_b.pt2"]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_what_the_callback_raises_is_raised_and_ends_the_run(tmp_path):
    done = []

    def full_disk(finished):
        done.append(finished.output.stem)
        raise OSError("no space left")

    jobs = [job(tmp_path, f"sub_{index}", float(index)) for index in range(3)]
    with LoweringPool(1) as pool:
        with pytest.raises(OSError, match="no space left"):
            pool.run(jobs, full_disk)
        assert done == ["sub_0"] and [path.stem for path in tmp_path.iterdir()] == ["sub_0"]
        pool.run(jobs[2:], lambda finished: done.append(finished.output.stem))
    assert done == ["sub_0", "sub_2"], "the pool goes on"


@pytest.mark.parametrize("stopped", [True, False], ids=["while it works", "before it works"])
def test_a_killed_worker_is_reported_with_advice(tmp_path, stopped):
    with pytest.raises(LoweringError) as refused, LoweringPool(1) as pool:
        (worker,) = pool._workers
        if stopped:
            os.kill(worker.pid, signal.SIGSTOP)  # it gets the job and does not answer
            threading.Timer(0.5, worker.kill).start()
        else:
            worker.kill()
            worker.wait()
        pool.run([job(tmp_path, "sub_a")])
    message = str(refused.value)
    assert "host code for sub_a" in message and "exit code -9" in message
    assert "ran out of memory" in message and "-O1" in message
    assert list(tmp_path.iterdir()) == []
