"""Keys and names of cache entries, and differences between a request and cached entries."""

from pathlib import Path

import pytest

from optimum_neuron.compiler.cache import entry_name
from optimum_neuron.compiler.cache.entries import Entry, Marker
from optimum_neuron.compiler.cache.explain import describe, differences, nearest_entries, summary
from optimum_neuron.compiler.cache.requests import entry_key, parse
from optimum_neuron.errors import ConfigError

FIELDS = {"compiler_version": "2.21.5+abc", "target": "inf2", "shapes": {"input_ids": [1, 128]}}


def test_key_depends_on_content_alone():
    shuffled = {"shapes": {"input_ids": (1, 128)}, "target": "inf2", "compiler_version": "2.21.5+abc"}
    assert entry_key(FIELDS) == entry_key(shuffled)
    assert entry_name(FIELDS) == f"neuronxcc-2.21.5+abc/MODULE_{entry_key(FIELDS)[:20]}"


@pytest.mark.parametrize(
    "change", [{"target": "trn1"}, {"compiler_version": "2.22"}, {"shapes": {"input_ids": [1, 129]}}, {"flag": None}]
)
def test_every_field_decides(change):
    assert entry_key({**FIELDS, **change}) != entry_key(FIELDS)


@pytest.mark.parametrize("version", [None, "", "../../etc", "a/b", ".hidden", 2, "v" * 200])
def test_compiler_version_unfit_for_a_folder_name_is_refused(version):
    with pytest.raises(ConfigError) as error:
        entry_key({**FIELDS, "compiler_version": version})
    assert error.value.details["option"] == "compiler_version"


def test_paths_are_not_part_of_key():
    with pytest.raises(ConfigError) as error:
        entry_key({**FIELDS, "model": Path("/home/me/model")})
    assert error.value.details["problems"] == ["model is a PosixPath"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"entry": "../../etc", "key": "a"}',
        b'{"entry": "neuronxcc-1/MODULE_x/..", "key": "a"}',
        b'{"entry": 3, "key": "a"}',
        b'{"entry": "neuronxcc-1/MODULE_00000000000000000000"}',
        b"[" * 100_000,
    ],
)
def test_index_file_with_outside_path_is_ignored(data):
    assert parse(data) is None


REQUEST = {
    "compiler_version": "2.21",
    "batch_size": 1,
    "sequence_length": 2048,
    "flags": {"auto_cast": "none"},
    "shapes": [[1, 2048], [1, 2048]],
    "ir": "a" * 64,
}


def entry(name, created_unix_s=0, **change):
    marker = Marker(key="", neff_hash="", neff_size_bytes=0, created_unix_s=created_unix_s)
    return Entry(name=name, state="success", reason="complete", fields={**REQUEST, **change}, marker=marker)


def test_hashes_are_omitted_when_another_field_differs():
    result = differences(REQUEST, {**REQUEST, "sequence_length": 4096, "ir": "b" * 64})
    assert describe(result) == "sequence_length 2048, cached 4096"


def test_hashes_are_named_when_nothing_else_differs():
    assert describe(differences(REQUEST, {**REQUEST, "ir": "b" * 64})) == "ir aaaaaaaaaaaa..., cached bbbbbbbbbbbb..."


def test_nested_and_missing_fields_are_named_by_path():
    cached = {**REQUEST, "flags": {"auto_cast": "all", "lnc": 2}, "shapes": [[1, 2048], [1, 99]]}
    del cached["batch_size"]
    assert describe(differences(REQUEST, cached)) == (
        "batch_size 1, cached without it; flags.auto_cast none, cached all; flags.lnc not asked for, cached 2; "
        "shapes.1 [1, 2048], cached [1, 99]"
    )


def test_tuples_and_lists_are_same():
    assert differences({"a": (1, 2), "b": [(1,), (2,)]}, {"a": [1, 2], "b": [[1], [2]]}) == []


def test_nearest_entry_comes_first_and_unrelated_are_omitted():
    entries = [
        entry("two", batch_size=8, sequence_length=1),
        entry("old", created_unix_s=1, batch_size=2),
        entry("new", created_unix_s=2, batch_size=4),
        Entry(name="stranger", state="success", reason="", fields={"task": "other"}, marker=None),
        Entry(name="broken", state="incomplete", reason=""),
    ]
    assert [result.name for result, _ in nearest_entries(REQUEST, entries, limit=9)] == ["new", "old", "two"]
    assert len(nearest_entries(REQUEST, entries, limit=1)) == 1


def test_summary_is_short():
    line = summary({f"field{i}": i for i in range(10)} | {"ir": "a" * 64})
    assert line.endswith("field7 7, 2 more") and "aaaa" not in line


def test_summary_starts_with_model_task_and_shapes():
    fields = {"compiler_version": "1", "auto_cast": "none", "sequence_length": 64, "task": "fill-mask", "family": None}
    line = summary({**fields, "model_type": "bert"})
    assert line == "model_type bert, task fill-mask, sequence_length 64, auto_cast none, compiler_version 1"
