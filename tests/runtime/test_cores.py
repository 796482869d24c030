"""Claims on cores: errors among real processes, release, records for others, the examples."""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

from optimum_neuron.errors import ConfigError, CoreBusyError
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, held_cores
from tests.raising import raises

ROOT = Path(__file__).parents[2]
SMALL, MEDIUM = INSTANCES["inf2.xlarge"], INSTANCES["inf2.24xlarge"]


def test_second_process_gets_another_core_and_third_is_refused(start):
    first, second, third = start(), start(), start()
    assert first.ask("claim", "bert") == [0]
    assert second.ask("claim", "llama") == [1]
    error = third.ask("claim", "whisper")
    assert error["error"] == "CoreBusyError"
    head, *lines, hint = error["message"].splitlines()
    assert "'whisper' needs 1 core" in head and "hold 2 of the 2 cores of inf2.xlarge" in head
    assert "OPTIMUM_NEURON_INSTANCE=inf2.24xlarge" in hint and "End a process of the table" in hint
    assert [line.split()[:3] for line in lines] == [
        ["core", "pid", "model"],
        ["0", str(first.pid), "bert"],
        ["1", str(second.pid), "llama"],
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", lines[1].split()[3])
    assert [row["pid"] for row in error["details"]["holders"]] == [first.pid, second.pid]
    assert error["details"]["variables"] == ["OPTIMUM_NEURON_INSTANCE=inf2.24xlarge"]


def test_released_core_is_free_while_its_process_lives_on(start):
    first, second = start(NEURON_RT_VISIBLE_CORES="0"), start(NEURON_RT_VISIBLE_CORES="0")
    assert first.ask("claim", "bert") == [0]
    assert second.ask("claim", "llama")["error"] == "CoreBusyError"
    assert first.ask("release", "bert") is None
    assert second.ask("claim", "llama") == [0]
    assert first.ask("claim", "bert")["error"] == "CoreBusyError"


def test_claims_on_two_instances_are_independent(environ):
    with claim_cores(SMALL, model="bert", environ=environ), claim_cores(MEDIUM, model="bert", environ=environ) as claim:
        assert claim.core_ids == (0,)
        assert len(held_cores(SMALL, environ=environ)) == len(held_cores(MEDIUM, environ=environ)) == 1


def test_release_is_idempotent_and_shown_in_repr(environ):
    claim = claim_cores(SMALL, model="bert", environ=environ)
    assert claim.held and repr(claim) == "CoreClaim('bert', cores 0 of inf2.xlarge, held)"
    claim.release()
    second = claim_cores(SMALL, model="llama", environ=environ | {"NEURON_RT_VISIBLE_CORES": "0"})
    claim.release()
    assert not claim.held and second.held and repr(claim).endswith("released)")
    second.release()


def test_last_reference_frees(start, environ):
    worker = start(NEURON_RT_VISIBLE_CORES="0")
    claim = claim_cores(SMALL, model="bert", environ=environ)
    assert worker.ask("claim", "llama")["error"] == "CoreBusyError"
    del claim
    gc.collect()
    assert worker.ask("claim", "llama") == [0]


def test_lock_and_not_record_holds_core(start, environ, tmp_path, records):
    assert held_cores(SMALL, environ=environ) == [] and list(tmp_path.iterdir()) == []
    worker = start()
    assert worker.ask("claim", "bert") == [0]
    (row,) = held_cores(SMALL, environ=environ)
    assert (row["core_id"], row["pid"], row["model"]) == (0, worker.pid, "bert")
    assert row["command"].startswith(sys.executable) and "\n" not in row["command"]
    folder = tmp_path / "cores" / SMALL.name
    (folder / records()[0]).write_text("{")
    rows = [{"core_id": 0, "pid": None, "model": None, "since": None, "command": None}]
    assert held_cores(SMALL, environ=environ) == rows
    with raises(CoreBusyError, holders=rows):
        claim_cores(SMALL, model="llama", environ=environ | {"NEURON_RT_VISIBLE_CORES": "0"})


def test_unusable_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with raises(ConfigError, folder=str(tmp_path / "file" / "cores" / SMALL.name)):
        claim_cores(SMALL, model="bert", environ={"OPTIMUM_NEURON_HOME": str(tmp_path / "file")})
