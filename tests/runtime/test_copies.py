"""One program on several cores: concurrent calls, in order, and errors for busy cores."""

from __future__ import annotations

import threading

import pytest
import torch

from optimum_neuron.errors import CoreBusyError, DeviceMemoryError
from optimum_neuron.runtime import Copies, CoreThreads, held_cores, ledger, load_copies
from tests.device.conftest import host_threads
from tests.programs import spec
from tests.raising import raises
from tests.runtime.conftest import INSTANCE, loader
from tests.waiting import PATIENCE_S, in_threads

LINEAR = torch.nn.Linear(4, 2)


@pytest.fixture
def load(home):
    """A function that loads a small program on a core."""
    compiled_model = loader(LINEAR, {"x": spec(3, 4)})
    return lambda core: compiled_model(model_name="linear", core=core)


def test_calls_run_concurrently_on_cores_in_turn_and_keep_order():
    together, values = threading.Barrier(3, timeout=30), []

    def call(core, part):
        if part < 3:
            together.wait()  # broken where fewer than three run at once
        values.append((core, part, threading.current_thread().name))
        return part * part

    threads = CoreThreads(3)
    assert threads.map(call, [0, 1, 2, 3, 4]) == [0, 1, 4, 9, 16]
    assert sorted((part, core) for core, part, _ in values) == [(0, 0), (1, 1), (2, 2), (3, 0), (4, 1)]
    assert all(name.startswith("NeuronCore") for _, _, name in values)


def test_host_threads_are_divided_among_replicas(monkeypatch):
    with host_threads(4):
        assert CoreThreads(2).map(lambda core, part: torch.get_num_threads(), [0, 1]) == [2, 2]
        assert CoreThreads(8).map(lambda core, part: torch.get_num_threads(), [0]) == [1]
        later = []
        in_threads(lambda: later.append(torch.get_num_threads()))
        assert (torch.get_num_threads(), later) == (4, [4])


def test_idle_threads_end():
    threads = CoreThreads(2)
    started = threads.map(lambda core, part: threading.current_thread(), [0, 1])
    del threads
    for thread in started:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_first_error_is_raised_after_all_calls_have_ended():
    results = []

    def call(core, part):
        if part in (1, 2):
            raise ValueError(part)
        results.append(part)

    with pytest.raises(ValueError, match="1"):
        CoreThreads(2).map(call, [0, 1, 2, 3])
    assert sorted(results) == [0, 3]


def test_every_core_is_claimed_charged_and_gives_same_results(load):
    copies = Copies(load_copies([0, 1], load, model="linear"))
    assert copies.core_ids == (0, 1)
    assert [row["core_id"] for row in held_cores(INSTANCE)] == [0, 1]
    used = [ledger(INSTANCE, core).used_by_category() for core in copies.core_ids]
    assert used[0] == used[1] and used[0]["weights"] == (4 * 2 + 2) * 4
    inputs = [torch.randn(3, 4) for _ in range(5)]
    results = copies.run_all([("graph", [x]) for x in inputs])
    for x, result in zip(inputs, results, strict=True):
        assert torch.equal(next(iter(result.values())), LINEAR(x))
    for loaded_model in copies.loaded:
        loaded_model.close()
    assert held_cores(INSTANCE) == []


def test_single_calls_go_to_cores_in_turn(load, monkeypatch):
    copies = Copies(load_copies([0, 1], load, model="linear"))
    calls = []
    for loaded_model in copies.loaded:
        monkeypatch.setattr(loaded_model, "run", lambda *call, at=loaded_model: calls.append(at.claim.core_ids[0]))
    for _ in range(3):
        copies.run_all([("graph", [torch.ones(3, 4)])])
    assert calls == [0, 1, 0]


def test_busy_cores_are_reported_with_holders_and_nothing_stays_loaded(load, start):
    other = start("trn1.2xlarge")
    (taken,) = other.ask("claim", "bert")
    with pytest.raises(CoreBusyError) as excinfo:
        load_copies([0, 1], load, model="linear")
    (row,) = excinfo.value.details["holders"]
    assert (row["core_id"], row["pid"], row["model"]) == (taken, other.pid, "bert")
    assert str(other.pid) in excinfo.value.message and excinfo.value.details["num_copies"] == 2
    assert f"NEURON_RT_VISIBLE_CORES={1 - taken}" in excinfo.value.details["variables"]
    assert [row["pid"] for row in held_cores(INSTANCE)] == [other.pid]


def test_core_without_room_leaves_nothing_loaded(load):
    core = ledger(INSTANCE, 1)
    hog = core.charge("weights", core.available_bytes, "hog")
    with raises(DeviceMemoryError, core_id=1, num_fitting=1, num_copies=2):
        load_copies([0, 1], load, model="linear")
    assert held_cores(INSTANCE) == []
    hog.release()
