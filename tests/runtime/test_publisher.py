"""Published status of processes' cores: its appearance, contents, and removal."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import threading

import pytest
import torch

from optimum_neuron.errors import ConfigError, ShapeError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, publisher, read_status, status_path, watch
from optimum_neuron.runtime.publisher import PUBLISHER
from tests.programs import spec
from tests.runtime.conftest import INSTANCE, loader
from tests.waiting import soon

MICROCODE = 96 * 2**20


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cores" / "inf2.xlarge"


@pytest.fixture
def loaded_model(home, monkeypatch):
    monkeypatch.setenv("NEURON_PROCESS_TAG", "chat")
    loaded_model = loader(torch.nn.Linear(64, 32), {"x": spec(8, 64)})(model_name="line")
    yield loaded_model
    loaded_model.close()


def own_status(tmp_path):
    return status_of(tmp_path / "cores" / INSTANCE.name)


def status_of(folder):
    """Status of this process, as soon as it is written."""
    return soon(lambda: read_status(folder, os.getpid()))


def graphs(tmp_path):
    models = own_status(tmp_path).models
    return models[0].graphs if models else ()


def test_loaded_model_its_memory_and_its_calls_are_reported(loaded_model, tmp_path):
    status = soon(lambda: (status := own_status(tmp_path)).models and status)
    (core,) = status.cores
    assert (status.tag, core.core_id, core.capacity_bytes) == ("chat", loaded_model.claim.core_ids[0], 16 * 2**30)
    assert core.hbm_bytes["line"]["weights"] == loaded_model.need.weights > 0
    assert core.hbm_bytes["microcode"]["code"] == MICROCODE
    (model,) = status.models
    assert (model.name, model.core_ids, model.graphs) == ("line", loaded_model.claim.core_ids, ())
    for _ in range(3):
        loaded_model.run("graph", [torch.ones(8, 64)])
    (graph,) = soon(lambda: graphs(tmp_path))
    assert graph.name == "graph" and graph.host_us > 0
    assert (graph.device_us, graph.launch_us, graph.flops) == (None, None, None)
    assert soon(lambda: graphs(tmp_path)[0].num_calls == 3)


def test_simulated_times_are_reported_to_watching_tool(loaded_model, tmp_path):
    loaded_model.run("graph", [torch.ones(8, 64)])
    watch(tmp_path / "cores" / INSTANCE.name)
    (graph,) = soon(lambda: (result := graphs(tmp_path)) and result[0].device_us and result)
    assert graph.device_us > graph.launch_us > 0
    assert graph.flops >= 2 * 8 * 64 * 32


def test_running_call_is_reported(loaded_model, tmp_path, monkeypatch):
    def wait(*_):
        assert soon(lambda: own_status(tmp_path).models[0].running_us > 0)
        raise KeyboardInterrupt

    monkeypatch.setattr(loaded_model.executor, "run", wait)
    with pytest.raises(KeyboardInterrupt):
        loaded_model.run("graph", [torch.ones(8, 64)])
    assert soon(lambda: own_status(tmp_path).models[0].running_us == 0)


def test_failed_calls_are_reported_by_outcome(loaded_model, tmp_path, monkeypatch):
    with pytest.raises(ShapeError):
        loaded_model.run("graph", [torch.ones(8, 63)])
    monkeypatch.setattr(loaded_model.executor, "run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loaded_model.run("graph", [torch.ones(8, 64)])
    assert soon(lambda: own_status(tmp_path).errors == {"incorrect_input": 1, "completed_with_err": 1})
    assert graphs(tmp_path) == ()


def test_file_and_thread_end_with_last_claim(environ, folder):
    instance = INSTANCES["inf2.xlarge"]
    one, other = (claim_cores(instance, model=name, environ=environ) for name in ("a", "b"))
    path = status_path(folder, os.getpid())
    assert soon(lambda: len(status_of(folder).cores) == 2)
    one.release()
    assert soon(lambda: [core.core_id for core in status_of(folder).cores] == list(other.core_ids))
    other.release()
    assert soon(lambda: not path.exists())
    with claim_cores(instance, model="c", environ=environ):
        assert soon(path.exists)
        assert sum(thread.name == "NeuronStatus" for thread in threading.enumerate()) == 1


def test_exiting_process_removes_its_file(start, folder):
    worker = start()
    worker.ask("claim", "bert")
    path = status_path(folder, worker.pid)
    assert soon(path.exists)
    assert worker.end() == 0 and not path.exists()


def test_leftovers_of_killed_process_are_removed_by_next_claim(start, folder):
    killed, other, foreign = start(), start(), folder / "notes.status"
    killed.ask("claim", "bert")
    path = status_path(folder, killed.pid)
    assert soon(path.exists)
    foreign.write_text("not ours")
    half_written = folder / f".{killed.pid}.status.{killed.pid}-0123abcd.tmp"
    half_written.write_text("{")
    killed.kill()
    assert path.exists()
    other.ask("claim", "bert")
    assert not path.exists() and not half_written.exists() and foreign.exists()


def test_forked_child_reports_only_its_cores(start, folder):
    worker = start()
    worker.ask("claim", "bert")
    child, answer = worker.ask("fork", "claim")
    assert answer["core_ids"] == [1]
    assert soon(lambda: not status_path(folder, child).exists())
    status = soon(lambda: read_status(folder, worker.pid))
    assert [core.core_id for core in status.cores] == [0]


def test_unwritable_folder_is_reported_once(environ, monkeypatch, caplog):
    def full(*_):
        raise ConfigError("no space left")

    monkeypatch.setattr(publisher, "write_status", full)
    monkeypatch.setattr(PUBLISHER, "_warned", False)
    with caplog.at_level(logging.WARNING), claim_cores(INSTANCES["inf2.xlarge"], model="a", environ=environ):
        assert soon(lambda: caplog.messages)
        PUBLISHER.wake()
        assert soon(lambda: not PUBLISHER._awake.is_set())
        assert caplog.messages == ["neuron-top and neuron-monitor do not see this process: no space left"]


def test_file_is_plain_json(start, folder):
    worker = start(NEURON_PROCESS_TAG="my_app")
    worker.ask("claim", "bert")
    result = json.loads(soon(lambda: (path := status_path(folder, worker.pid)).exists() and path.read_text()))
    assert result["version"] == 1 and result["tag"] == "my_app" and result["pid"] == worker.pid


def test_objects_that_a_memory_profiler_sees_end_no_report():
    """Python 3.11 lets it see the tuple that `tuple(generator)` has not finished, which then fails."""

    def cores():
        for number in range(3):
            seen.append([one for one in gc.get_objects() if type(one) is tuple])
            yield number

    seen = []
    if sys.version_info < (3, 12):
        with pytest.raises(SystemError):
            tuple(cores())
    assert publisher._tuple(cores()) == (0, 1, 2)


def test_next_claim_reports_after_thread_ended_with_an_error(environ, monkeypatch, folder):
    def broken(*_):
        raise SystemError("bad argument to internal function")

    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "write_status", broken)
        with claim_cores(INSTANCES["inf2.xlarge"], model="a", environ=environ):
            assert soon(lambda: errors)
    assert errors[0].exc_type is SystemError
    with claim_cores(INSTANCES["inf2.xlarge"], model="b", environ=environ):
        assert status_of(folder).pid == os.getpid()
