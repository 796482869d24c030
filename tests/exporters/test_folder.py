"""Exported folders: what is in them, that they appear whole, and that damage is noticed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from filelock import FileLock

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ArtifactError, CacheError, ConfigError, FormatVersionError, WeightsError
from optimum_neuron.exporters.folder import (
    FOLDER_VERSION,
    file_hash,
    is_broken_export,
    is_export,
    read_folder,
    verify_weights,
)
from optimum_neuron.exporters.save import save_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def copy(exported, tmp_path) -> Path:
    """An exported folder that a test may damage."""
    return shutil.copytree(exported, tmp_path / "copy")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def edit_marker(folder: Path, change) -> None:
    path = folder / "neuron_config.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


# Writing.


def test_what_is_in_it(exported, checkpoint, model):
    assert names(exported) == names(checkpoint) | {"model.neuron", "neuron_config.json"}
    info = read_folder(exported)
    assert info.config == model.neuron_config
    assert info.artifact["checkpoint"] == str(checkpoint)
    assert info.artifact["neff_sha256"] == file_hash(exported / "model.neuron")
    assert info.artifact["weights"] == {
        "file": "model.safetensors",
        "size_bytes": (exported / "model.safetensors").stat().st_size,
        "sha256": file_hash(exported / "model.safetensors"),
    }
    assert [error.output for error in info.validation][:2] == [
        "prompts of 16 tokens: prompt",
        "prompts of 16 tokens: last prompt token",
    ]


def test_the_marker_is_json_that_every_reader_takes(exported):
    def refuse(name):
        pytest.fail(f"{name} is not JSON")

    rows = json.loads((exported / "neuron_config.json").read_text(), parse_constant=refuse)["artifact"]["validation"]
    assert rows and all(row["ok"] for row in rows)


def test_equal_exports_have_equal_bytes(model, exported, tmp_path):
    save_folder(model.prepared, tmp_path)
    assert {n: file_hash(tmp_path / n) for n in names(tmp_path)} == {
        n: file_hash(exported / n) for n in names(exported)
    }


def test_the_size_is_that_of_the_files(model, tmp_path):
    assert save_folder(model.prepared, tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_an_older_export_is_replaced(model, checkpoint, copy):
    inlined = NeuronModelForCausalLM.from_pretrained(
        checkpoint, export=True, inline_weights_to_neff=True, disable_validation=True, **_shapes(model)
    )
    save_folder(inlined.prepared, copy)
    assert "model.safetensors" not in names(copy), "weights of the older export would be taken for its own"
    assert NeuronModelForCausalLM.from_pretrained(copy).neuron_config.inline_weights_to_neff


def _shapes(model):
    config = model.neuron_config
    return {
        name: getattr(config, name)
        for name in ("batch_size", "sequence_length", "prefill_buckets", "torch_dtype", "optlevel")
    }


def test_nothing_that_is_no_export_is_written_over(model, checkpoint, tmp_path):
    before = {path.name: file_hash(path) for path in checkpoint.iterdir()}
    foreign = shutil.copytree(checkpoint, tmp_path / "another")
    (tmp_path / "file").write_text("mine")
    for output in (checkpoint / ".." / checkpoint.name, foreign, tmp_path / "file"):
        with pytest.raises(ConfigError) as error:
            save_folder(model.prepared, output)
        assert error.value.details["output"] == str(output)
    assert before == {path.name: file_hash(path) for path in foreign.iterdir()}
    with pytest.raises(CacheError, match="Not a directory"):
        save_folder(model.prepared, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_with_a_tokenizer_can_be_exported_into(model, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    save_folder(model.prepared, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine" and is_export(tmp_path)


# Writing that goes wrong.


def test_an_error_in_the_middle_leaves_the_older_export(model, copy, monkeypatch):
    before = {path.name: file_hash(path) for path in copy.iterdir()}

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(CacheError, match="No space left on device"):
        save_folder(model.prepared, copy)
    assert before == {path.name: file_hash(path) for path in copy.iterdir()}


def test_a_full_disk_leaves_no_export_and_an_older_one_as_it_was(model, exported, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    sizes = sum(path.stat().st_size for path in exported.iterdir())
    command = ["mount", "-t", "tmpfs", "-o", f"size={int(sizes * 1.5) // 1024}k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("this process may not mount")
    try:
        save_folder(model.prepared, disk / "first")
        with pytest.raises(CacheError, match="No space left on device"):
            save_folder(model.prepared, disk / "second")
        assert names(disk / "second") == set()
        with pytest.raises(CacheError, match="No space left on device"):
            save_folder(model.prepared, disk / "first")
        assert names(disk / "first") == names(exported)
        read_folder(disk / "first")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


KILLED = textwrap.dedent("""
    import os, signal, sys
    from optimum_neuron import NeuronModelForCausalLM
    from optimum_neuron.exporters import save

    model = NeuronModelForCausalLM.from_pretrained(sys.argv[1])
    move = os.replace

    def move_or_die(source, target):
        if str(target).endswith(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        move(source, target)

    save.os.replace = move_or_die
    model.save_pretrained(sys.argv[2])
""")


@pytest.mark.parametrize("at", ["out/model.neuron", "out/neuron_config.json"], ids=["first_file", "last_file"])
def test_a_killed_save_is_no_export_and_the_next_one_repairs_it(at, model, exported, tmp_path):
    output = tmp_path / "out"
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OPTIMUM_NEURON_HOME": str(tmp_path / "home")}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(exported), str(output), at], env=environ)
    assert ended.returncode == -signal.SIGKILL
    assert any(name.startswith(".partial-") for name in names(output))
    assert not is_export(output)
    if at == "out/neuron_config.json":
        assert is_broken_export(output)
        with pytest.raises(ArtifactError, match="neuron_config.json missing"):
            NeuronModelForCausalLM.from_pretrained(output)
    save_folder(model.prepared, output)
    assert names(output) == names(exported)
    read_folder(output)


def test_files_of_a_process_that_still_writes_are_left_alone(model, exported, tmp_path):
    busy = tmp_path / ".partial-other"
    busy.mkdir()
    with FileLock(busy / "writing.lock"):
        save_folder(model.prepared, tmp_path)
        assert names(tmp_path) == names(exported) | {busy.name}
    save_folder(model.prepared, tmp_path)
    assert names(tmp_path) == names(exported)


# Reading.


def test_a_folder_that_is_no_export(tmp_path, checkpoint):
    for folder in (tmp_path, checkpoint):
        assert not is_export(folder) and not is_broken_export(folder)
        with pytest.raises(ArtifactError, match="neuron_config.json, model.neuron missing"):
            read_folder(folder)


@pytest.mark.parametrize("name", ["neuron_config.json", "model.neuron"])
def test_half_an_export(copy, name):
    (copy / name).unlink()
    assert not is_export(copy) and is_broken_export(copy)
    with pytest.raises(ArtifactError, match=f": {name} missing"):
        read_folder(copy)


def test_a_newer_folder_is_refused_whatever_else_is_in_it(copy):
    (copy / "neuron_config.json").write_text(json.dumps({"version": FOLDER_VERSION + 1, "shapes": "of the future"}))
    with pytest.raises(FormatVersionError) as error:
        read_folder(copy)
    assert error.value.details == {"version": FOLDER_VERSION + 1, "supported": FOLDER_VERSION}


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda data: data.clear(), "KeyError: 'version'"),
        (lambda data: data.update(version="new"), "ValueError"),
        (lambda data: data.update(neuron=3), "TypeError"),
        (lambda data: data["neuron"].update(batch_size=0), "batch_size is 0"),
        (lambda data: data["neuron"].update(sequence_length=None), "sequence_length is missing"),
        (lambda data: data["neuron"].pop("prefill_buckets"), "prefill_buckets"),
        (lambda data: data["neuron"].update(batchsize=1), "did you mean 'batch_size'"),
        (lambda data: data["artifact"].pop("neff_sha256"), "KeyError: 'neff_sha256'"),
        (lambda data: data["artifact"].update(validation=[{}]), "KeyError: 'output'"),
    ],
)
def test_a_damaged_marker(copy, change, found):
    edit_marker(copy, change)
    with pytest.raises(ArtifactError, match=f"neuron_config.json .*{found}"):
        read_folder(copy)


def test_a_marker_that_is_no_json(copy):
    (copy / "neuron_config.json").write_text("not json")
    with pytest.raises(ArtifactError, match="JSONDecodeError"):
        read_folder(copy)


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_changed_neff_is_noticed(copy, monkeypatch):
    flip_a_byte(copy / "model.neuron")
    with pytest.raises(ArtifactError, match="its sha256 differs"):
        read_folder(copy)
    monkeypatch.setenv("NEURON_RT_VALIDATE_HASH", "0")
    read_folder(copy)


def test_changed_weights_are_noticed(copy, monkeypatch):
    flip_a_byte(copy / "model.safetensors")
    artifact = read_folder(copy).artifact
    with pytest.raises(WeightsError, match="its sha256 differs"):
        verify_weights(copy, artifact)
    monkeypatch.setenv("NEURON_RT_VALIDATE_HASH", "0")
    verify_weights(copy, artifact)
    (copy / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match="model.safetensors is missing"):
        verify_weights(copy, artifact)
