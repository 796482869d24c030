"""Status files: round trips, and no content breaks a reader."""

from __future__ import annotations

import json
import os

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.runtime import CoreStatus, GraphStatus, ModelStatus, Status, read_status, status
from tests.raising import raises

STATUS = Status(
    pid=7,
    tag="chat",
    at_s=12.5,
    cores=(CoreStatus(core_id=1, capacity_bytes=100, hbm_bytes={"bert": {"weights": 5}, "microcode": {"code": 9}}),),
    models=(
        ModelStatus(
            model_id=3,
            name="bert",
            core_ids=(1,),
            running_us=2.5,
            graphs=(
                GraphStatus(name="forward", num_calls=2, host_us=7.5, device_us=3.5, launch_us=1.0, flops=64.0),
                GraphStatus(name="other", num_calls=0, host_us=0.0, device_us=None, launch_us=None, flops=None),
            ),
        ),
    ),
    errors={"incorrect_input": 1},
)


def changed(**fields):
    return {"version": status.VERSION, **json.loads(json.dumps(status.dataclasses.asdict(STATUS))), **fields}


def test_status_round_trip(tmp_path):
    status.write_status(tmp_path, STATUS)
    assert read_status(tmp_path, 7) == STATUS
    assert [path.name for path in tmp_path.iterdir()] == ["7.status"]


def test_file_of_another_process_is_ignored(tmp_path):
    status.write_status(tmp_path, STATUS)
    os.rename(status.status_path(tmp_path, 7), status.status_path(tmp_path, 8))
    assert read_status(tmp_path, 7) is None and read_status(tmp_path, 8) is None


RECORD = json.dumps({"pid": 7, "core_ids": [0], "model": None})
WRONG = {
    "version": (2, None),
    "pid": ("7", True),
    "tag": (None,),
    "at_s": (float("nan"), float("inf"), "1"),
    "cores": ({}, [{"core_id": 0}], [7]),
    "models": ([{"model_id": 1, "name": "bert", "core_ids": [-1], "graphs": []}], None),
    "errors": ({"generic": -1}, {"generic": 1.5}),
}


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "null", "[]", "7", "\x00" * 64, "[" * 100_000, json.dumps(changed())[:-20], RECORD),
        *(json.dumps(changed(**{name: value})) for name, values in WRONG.items() for value in values),
    ],
)
def test_invalid_status_is_none(tmp_path, text):
    status.status_path(tmp_path, 7).write_text(text)
    assert read_status(tmp_path, 7) is None


def test_file_of_unknown_keys_is_read(tmp_path):
    status.status_path(tmp_path, 7).write_text(json.dumps(changed(more=1)))
    assert read_status(tmp_path, 7) == STATUS


def test_missing_and_unreadable_files_are_none(tmp_path):
    assert read_status(tmp_path, 1) is None and read_status(tmp_path / "missing", 1) is None
    status.status_path(tmp_path, 2).mkdir()
    os.mkfifo(status.status_path(tmp_path, 3))
    status.status_path(tmp_path, 4).write_bytes(b"\xff\xfe{")
    with open(status.status_path(tmp_path, 5), "wb") as file:
        file.truncate(2**33)
    assert [read_status(tmp_path, pid) for pid in (2, 3, 4, 5)] == [None] * 4


def test_missing_folder_is_reported(tmp_path):
    with raises(ConfigError, path=str(status.status_path(tmp_path / "missing", STATUS.pid))):
        status.write_status(tmp_path / "missing", STATUS)


def test_watcher_is_noticed_for_half_minute(tmp_path):
    assert not status.is_watched(tmp_path) and not status.is_watched(tmp_path / "missing")
    status.watch(tmp_path)
    assert status.is_watched(tmp_path)
    os.utime(tmp_path / "watched", (1, 1))
    assert not status.is_watched(tmp_path)
    status.watch(tmp_path)
    assert status.is_watched(tmp_path)
    status.watch(tmp_path / "missing")
