"""Processes on the cores: joined from claims and statuses; which instance is shown."""

from __future__ import annotations

import os

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, claims_folder, ledger, status_path
from optimum_neuron.tools import neuron_processes
from optimum_neuron.tools.processes import choose_instance, others_in_use
from tests.raising import raises
from tests.waiting import soon

SMALL, OTHER = INSTANCES["inf2.xlarge"], INSTANCES["trn1.2xlarge"]
MICROCODE = 96 * 2**20


def test_process_with_its_models_and_memory_by_core(monkeypatch):
    monkeypatch.setenv("NEURON_PROCESS_TAG", "chat")
    monkeypatch.setattr("optimum_neuron.runtime.hbm._LEDGERS", {})  # models of other tests are on these cores too
    with claim_cores(SMALL, model="bert"), claim_cores(SMALL, model="llama") as second:
        weights = ledger(SMALL, second.core_ids[0]).charge("weights", 2**20, "llama")

        def listed_process():
            (process,) = neuron_processes(SMALL)
            return (process.hbm_bytes() or {}).get("weights") and len(process.core_ids) == 2 and process

        process = soon(listed_process)
        weights.release()
    assert (process.pid, process.tag, process.core_ids) == (os.getpid(), "chat", (0, 1))
    assert process.models((0, 1)) == ("bert", "llama") and process.models((1,)) == ("llama",)
    assert process.hbm_bytes() == {"weights": 2**20, "kv_cache": 0, "scratch": 0, "code": 2 * MICROCODE}
    assert process.hbm_bytes((0,)) == {"weights": 0, "kv_cache": 0, "scratch": 0, "code": MICROCODE}


def test_process_without_status_is_listed(monkeypatch):
    monkeypatch.setattr("optimum_neuron.runtime.publisher.Publisher._write", lambda *_: None)
    with claim_cores(SMALL, model="bert"):
        (process,) = neuron_processes(SMALL)
    assert (process.status, process.hbm_bytes(), process.tag) == (None, None, str(os.getpid()))


@pytest.mark.parametrize("change", [lambda text: text[:-9], lambda text: text.replace('"pid": ', '"pid": -')])
def test_core_with_damaged_record_has_unknown_process(change):
    with claim_cores(SMALL, model="bert"):
        (record,) = claims_folder(SMALL).glob("*.json")
        record.write_text(change(record.read_text()))
        (process,) = neuron_processes(SMALL)
    assert (process.pid, process.tag, process.core_ids, process.models((0,))) == (None, "unknown", (0,), ())


def test_status_without_claim_is_not_a_process():
    folder = claims_folder(SMALL)
    folder.mkdir(parents=True)
    status_path(folder, os.getpid()).write_text("{}")
    assert neuron_processes(SMALL) == []


def test_which_instance_is_shown(monkeypatch):
    assert choose_instance(None).value is SMALL and others_in_use(SMALL) == []
    with claim_cores(OTHER, model="bert"):
        assert choose_instance(None).value is OTHER and choose_instance("inf2.xlarge").value is SMALL
        assert others_in_use(SMALL) == ["trn1.2xlarge"] and others_in_use(OTHER) == []
        monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.8xlarge")
        assert choose_instance(None).value is INSTANCES["inf2.8xlarge"]
    with raises(ConfigError, name="trn1.2xlrge"):
        choose_instance("trn1.2xlrge")
