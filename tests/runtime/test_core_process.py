"""Events that release a core, and events that do not: kills, forks, races, threads, finalizers."""

from __future__ import annotations

import os

import pytest

from optimum_neuron.errors import ConfigError, CoreBusyError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, core_files, held_cores
from optimum_neuron.runtime.core_process import PROCESS
from tests.raising import raises
from tests.waiting import in_threads

SMALL, MEDIUM = INSTANCES["inf2.xlarge"], INSTANCES["inf2.24xlarge"]


def test_killed_holder_frees_its_core_and_its_record_is_removed(start, records):
    first, second = start(NEURON_RT_VISIBLE_CORES="0"), start(NEURON_RT_VISIBLE_CORES="0")
    assert first.ask("claim", "bert") == [0]
    first.kill()
    assert len(records()) == 1
    assert second.ask("held") == []
    assert second.ask("claim", "llama") == [0]
    assert [(row["pid"], row["model"]) for row in second.ask("held")] == [(second.pid, "llama")]
    assert len(records()) == 1


def test_exiting_process_leaves_no_record(start, records):
    worker = start(NEURON_RT_NUM_CORES="2")
    assert worker.ask("claim", "bert") == [0]
    assert len(records()) == 2
    assert worker.end() == 0
    assert records() == []


@pytest.mark.parametrize("then", ["claim", "exit"])
def test_forked_child_does_not_inherit_claims(start, then):
    parent, other = start(), start(NEURON_RT_VISIBLE_CORES="0")
    assert parent.ask("claim", "bert") == [0]
    child, report = parent.ask("fork", then)
    assert report == ({"held": [False], "core_ids": [1]} if then == "claim" else {"held": [False]})
    error = other.ask("claim", "llama")
    assert error["error"] == "CoreBusyError"
    assert [row["pid"] for row in error["details"]["holders"]] == [parent.pid]
    assert [row["pid"] for row in parent.ask("held") if row["core_id"] == 0] == [parent.pid]


@pytest.mark.parametrize("how", ["fork", "sleeper"])
def test_core_is_free_when_its_holder_dies_even_if_child_lives_on(start, orphans, how):
    parent, other = start(NEURON_RT_VISIBLE_CORES="0"), start(NEURON_RT_VISIBLE_CORES="0")
    assert parent.ask("claim", "bert") == [0]
    orphans.append(parent.ask("fork", "stay")[0] if how == "fork" else parent.ask("sleeper"))
    assert other.ask("claim", "llama")["error"] == "CoreBusyError"
    parent.kill()
    os.kill(orphans[0], 0)
    assert other.ask("claim", "llama") == [0]


def test_racing_processes_all_get_neighboring_cores(start):
    workers = [start(MEDIUM) for _ in range(4)]
    for worker in workers:
        worker.tell("claim", "llama", 2)
    taken = [tuple(worker.listen()) for worker in workers]
    assert sorted(taken) == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_finalizer_in_middle_of_claim_neither_blocks_nor_is_lost(start, environ, tmp_path):
    claim = claim_cores(SMALL, model="bert", environ=environ)
    with PROCESS.alone(tmp_path / "cores" / SMALL.name):
        claim.release()
    assert start(NEURON_RT_VISIBLE_CORES="0").ask("claim", "llama") == [0]


def test_finalizer_at_very_end_of_claim_is_not_lost(start, environ, monkeypatch):
    claim = claim_cores(SMALL, model="bert", environ=environ)
    close_unused = PROCESS._close_unused

    def then_release():
        close_unused()
        claim.release()

    monkeypatch.setattr(PROCESS, "_close_unused", then_release)
    assert [row["model"] for row in held_cores(SMALL, environ=environ)] == ["bert"]
    assert start(NEURON_RT_VISIBLE_CORES="0").ask("claim", "llama") == [0]


def test_threads_get_separate_cores(environ):
    claims = []
    in_threads(*[lambda: claims.append(claim_cores(MEDIUM, model="bert", environ=environ))] * 8)
    assert sorted(claim.core_ids for claim in claims) == [(core,) for core in range(8)]
    for claim in claims:
        claim.release()


def test_failed_claim_leaves_nothing(start, environ, records, monkeypatch):
    def full(path, core_ids, model):
        raise ConfigError("The disk is full.", path=str(path))

    monkeypatch.setattr(core_files, "write_record", full)
    with pytest.raises(ConfigError) as error:
        claim_cores(SMALL, model="bert", environ=environ)
    assert list(error.value.details) == ["path"]
    assert records() == []
    assert start(NEURON_RT_VISIBLE_CORES="0").ask("claim", "llama") == [0]


def test_suspended_process_in_middle_of_claim_is_reported(environ, tmp_path, monkeypatch):
    monkeypatch.setattr(core_files, "_PATIENCE_S", 0.0)
    folder = tmp_path / "cores" / SMALL.name
    with core_files.exclusive(folder), raises(CoreBusyError, folder=str(folder)):
        claim_cores(SMALL, model="bert", environ=environ)
