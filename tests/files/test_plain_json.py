"""Damaged JSON, in every file that a model, the cache, and the state of the cores have: typed errors, or no record."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.compiler.cache import CompileCache, entry_name
from optimum_neuron.compiler.neff import write_neff
from optimum_neuron.errors import ArtifactError, ModelError, NeuronError
from optimum_neuron.exporters import read_folder
from optimum_neuron.files.plain_json import parse_json, read_object
from optimum_neuron.files.shared_objects import find
from optimum_neuron.hardware import INSTANCES
from optimum_neuron.runtime import claim_cores, claims_folder, held_cores, read_status, status_path

NOT_JSON = {
    "empty": b"",
    "cut": b'{"version": 1, "neu',
    "bytes": b"\xff\xfe\x00",
    "zeros": b"\x00" * 20,
    "nested list": b"[" * 100_000 + b"]" * 100_000,
    "nested object": b'{"a":' * 50_000,
}
OTHER_JSON = {
    "list": b"[]",
    "null": b"null",
    "number": b"3",
    "long number": b"1" + b"0" * 400,
    "infinity": b"[1e999]",
    "text": b'"x"',
    "no keys": b"{}",
    "surrogate": b'{"\\udc00": 1}',
}
DAMAGE = NOT_JSON | OTHER_JSON

MARKER: dict[str, tuple[Any, ...]] = {
    "version": (None, "x", [], float("inf"), 10**400),
    "neuron": (None, [], 3),
    "neuron.task": ("text-generaton", None, [], {}),
    "neuron.instance_type": ([], -1, {}),
    "neuron.prefill_buckets": (None, "x", [[]], 10**400),
    "neuron.sequence_length": (None, True, {}),
    "neuron.batch_size": ("1", 0, float("nan")),
    "neuron.allow_host_ops": (None, {"a": 1}, [3]),
    "artifact": (None, [], "x"),
    "artifact.weights": ("x", [], {}, {"file": 3}),
    "artifact.validation": (None, [3], [{}]),
    "artifact.neff_sha256": (None, 3, "x"),
}
"""Field of `neuron_config.json` to values that no export writes."""


@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON)
def test_any_invalid_text_is_one_error(data, tmp_path):
    with pytest.raises(ValueError):
        parse_json(data)
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(ModelError) as excinfo:
        read_object(tmp_path / "a.json")
    assert excinfo.value.details == {"file": str(tmp_path / "a.json")}


def test_only_objects_are_read(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"a": [1, "\xc3\xa9"]}')
    assert read_object(tmp_path / "a.json") == {"a": [1, "é"]}
    (tmp_path / "a.json").write_bytes(b"[]")
    for path in (tmp_path / "a.json", tmp_path / "missing.json", tmp_path):
        with pytest.raises(ModelError):
            read_object(path)


@pytest.fixture
def copy(export_folder, tmp_path) -> Path:
    return shutil.copytree(export_folder, tmp_path / "copy")


@pytest.mark.parametrize("name", ["neuron_config.json", "config.json", "generation_config.json"])
def test_damaged_file_of_exported_folder(copy, name):
    """Some JSON is a valid file of transformers; all other damage is a typed error."""
    valid = ("no keys", "surrogate") if name == "generation_config.json" else ()
    for kind, data in DAMAGE.items():
        (copy / name).write_bytes(data)
        if kind in valid:
            NeuronModelForCausalLM.from_pretrained(copy).loaded.close()
            continue
        with pytest.raises(NeuronError):
            NeuronModelForCausalLM.from_pretrained(copy)


@pytest.mark.parametrize("field", MARKER)
def test_marker_field_of_invalid_type(copy, field):
    path = copy / "neuron_config.json"
    content = json.loads(path.read_bytes())
    parents, _, name = field.rpartition(".")
    for value in MARKER[field]:
        (content[parents] if parents else content)[name] = value
        path.write_text(json.dumps(content))
        with pytest.raises(ArtifactError):
            read_folder(copy)


FIELDS = {"compiler_version": "2.21", "target": "inf2", "batch_size": 1}


def produce(path: Path) -> None:
    write_neff(path, {"a": b"{}"}, name="m", target="inf2", core_version=2, compiler_version="2.21", metadata={})


@pytest.mark.parametrize("name", ["model.done", "fields.json"])
def test_damaged_file_of_cache_entry_is_miss(tmp_path, name):
    cache = CompileCache(tmp_path / "cache", spool=tmp_path / "spool")
    cache.get_or_compile(FIELDS, produce)
    path = tmp_path / "cache" / entry_name(FIELDS) / name
    whole = json.loads(path.read_bytes())
    numbers = [{**whole, "created_unix_s": value} for value in (10**400, -1, True, "1")] if name == "model.done" else []
    for data in (*DAMAGE.values(), *(json.dumps(content).encode() for content in numbers)):
        path.write_bytes(data)
        assert cache.lookup(FIELDS).value is None
        cache.status()
        cache.prune(older_than_days=1, dry_run=True)
    assert not cache.get_or_compile(FIELDS, produce).hit and cache.lookup(FIELDS).value is not None


def test_damaged_record_of_request_is_miss(tmp_path):
    cache = CompileCache(tmp_path / "cache", spool=tmp_path / "spool")
    before = {path for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    cache.get_or_compile(FIELDS, produce, request={"a": 1, "compiler_version": "2.21"})
    (path,) = (p for p in {*(tmp_path / "cache").rglob("*")} - before if p.is_file() and p.suffix == ".json"
               and p.name != "fields.json")  # fmt: skip
    for data in DAMAGE.values():
        path.write_bytes(data)
        assert cache.find({"a": 1, "compiler_version": "2.21"}).value is None


def test_damaged_records_of_cores_block_no_claim(tmp_path):
    """The lock of a core counts; its record only names its holder."""
    environ = {"OPTIMUM_NEURON_HOME": str(tmp_path)}
    small = INSTANCES["inf2.xlarge"]
    folder = claims_folder(small, environ)
    folder.mkdir(parents=True)
    for index, data in enumerate(DAMAGE.values()):
        (folder / f"{index + 1}-0.json").write_bytes(data)
    (folder / "77-0.json").mkdir()
    os.mkfifo(folder / "78-0.json")
    with claim_cores(small, model="bert", environ=environ) as claim:
        assert claim.core_ids and [row["model"] for row in held_cores(small, environ=environ)] == ["bert"]


def test_damaged_process_status_is_none(tmp_path):
    for data in DAMAGE.values():
        status_path(tmp_path, 7).write_bytes(data)
        assert read_status(tmp_path, 7) is None


def test_damaged_host_code_record_is_removed(tmp_path):
    for data in DAMAGE.values():
        (tmp_path / "a.json").write_bytes(data)
        assert find(tmp_path / "a.json") is None and not (tmp_path / "a.json").exists()
