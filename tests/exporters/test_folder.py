"""Exported folders: contents, atomic writes, and detection of damage."""

from __future__ import annotations

import json
import os
import shutil
import signal
import textwrap
from pathlib import Path

import pytest
import torch
import transformers
from filelock import FileLock

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import ArtifactError, CacheError, ConfigError, FormatVersionError, WeightsError
from optimum_neuron.exporters import read_folder, save_folder
from optimum_neuron.exporters.folder import FOLDER_VERSION, verify_weights
from optimum_neuron.files.records import file_hash
from optimum_neuron.options.configuration import is_broken_export, is_export
from tests import warm
from tests.neffs import small_disk
from tests.raising import raises

pytestmark = pytest.mark.usefixtures("compiled_before")


@pytest.fixture
def copy(export_folder, tmp_path) -> Path:
    """An exported folder that a test may damage."""
    return shutil.copytree(export_folder, tmp_path / "copy")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: file_hash(path) for path in folder.iterdir()}


# Reading.


def test_folder_of_an_earlier_version_has_the_tokens_of_transformers():
    # Written before the validation counted ties; never written again: what users have saved has to load.
    folder = Path(__file__).with_name("earlier_export")
    ids = torch.tensor([[5, 9, 17, 33]])
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    with NeuronModelForCausalLM.from_pretrained(folder) as compiled:
        tokens = compiled.generate(ids, **options)
    assert torch.equal(tokens, transformers.LlamaForCausalLM.from_pretrained(folder).generate(ids, **options))


# Writing.


def test_folder_contents(export_folder, checkpoint, model):
    assert names(export_folder) == names(checkpoint) | {"model.neuron", "neuron_config.json"}
    info = read_folder(export_folder)
    assert info.config == model.neuron_config
    assert info.artifact["checkpoint"] == str(checkpoint)
    assert info.artifact["neff_sha256"] == file_hash(export_folder / "model.neuron")
    assert info.artifact["weights"] == {
        "file": "model.safetensors",
        "size_bytes": (export_folder / "model.safetensors").stat().st_size,
        "sha256": file_hash(export_folder / "model.safetensors"),
    }
    assert [error.output for error in info.validation][:2] == [
        "prompts of 16 tokens: prompt",
        "prompts of 16 tokens: last prompt token",
    ]

    text = (export_folder / "neuron_config.json").read_text()
    rows = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["artifact"]["validation"]
    assert rows and all(row["ok"] for row in rows)


def test_equal_exports_are_byte_identical_and_report_size(model, export_folder, tmp_path):
    assert save_folder(model.prepared, tmp_path) == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert hashes(tmp_path) == hashes(export_folder)


def test_older_export_is_replaced(model, checkpoint, copy):
    shapes = ("batch_size", "sequence_length", "prefill_buckets", "torch_dtype", "optlevel")
    options = {name: getattr(model.neuron_config, name) for name in shapes} | {"disable_validation": True}
    inlined = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, inline_weights_to_neff=True, **options)
    save_folder(inlined.prepared, copy)
    assert "model.safetensors" not in names(copy), "weights of the older export would be taken for its own"
    assert NeuronModelForCausalLM.from_pretrained(copy).neuron_config.inline_weights_to_neff


def test_other_folders_are_not_overwritten(model, checkpoint, tmp_path):
    foreign = shutil.copytree(checkpoint, tmp_path / "another")
    (tmp_path / "file").write_text("mine")
    for output in (checkpoint / ".." / checkpoint.name, foreign, tmp_path / "file"):
        with pytest.raises(ConfigError) as error:
            save_folder(model.prepared, output)
        assert error.value.details["output"] == str(output)
    assert hashes(checkpoint) == hashes(foreign)
    with raises(CacheError, folder=str(tmp_path / "file" / "below")):
        save_folder(model.prepared, tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"


def test_folder_with_tokenizer_can_be_exported_into(model, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    save_folder(model.prepared, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine" and is_export(tmp_path)


# Writing that goes wrong.


def test_error_in_middle_leaves_older_export(model, copy, monkeypatch):
    before = hashes(copy)

    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(CacheError):
        save_folder(model.prepared, copy)
    assert before == hashes(copy)


def test_full_disk_keeps_the_older_export(model, export_folder, tmp_path):
    with small_disk(tmp_path / "disk", sum(path.stat().st_size for path in export_folder.iterdir()) * 3 // 2) as disk:
        save_folder(model.prepared, disk / "first")
        with pytest.raises(CacheError):
            save_folder(model.prepared, disk / "second")
        assert names(disk / "second") == set()
        with pytest.raises(CacheError):
            save_folder(model.prepared, disk / "first")
        assert names(disk / "first") == names(export_folder)
        read_folder(disk / "first")


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
def test_killed_save_is_repaired_by_the_next(at, model, export_folder, tmp_path):
    output = tmp_path / "out"
    environ = {**os.environ, "OPTIMUM_NEURON_HOME": str(tmp_path / "home")}
    result = warm.run("-c", KILLED, str(export_folder), str(output), at, env=environ)
    assert result.returncode == -signal.SIGKILL
    assert any(name.startswith(".partial-") for name in names(output))
    assert not is_export(output)
    if at == "out/neuron_config.json":
        assert is_broken_export(output)
        with raises(ArtifactError, missing=["neuron_config.json"]):
            NeuronModelForCausalLM.from_pretrained(output)
    save_folder(model.prepared, output)
    assert names(output) == names(export_folder)
    read_folder(output)


def test_files_of_a_live_writer_are_kept(model, export_folder, tmp_path):
    busy = tmp_path / ".partial-other"
    busy.mkdir()
    with FileLock(busy / "writing.lock"):
        save_folder(model.prepared, tmp_path)
        assert names(tmp_path) == names(export_folder) | {busy.name}
    save_folder(model.prepared, tmp_path)
    assert names(tmp_path) == names(export_folder)


# Reading.


def test_invalid_export_folder(tmp_path, checkpoint):
    for folder in (tmp_path, checkpoint):
        assert not is_export(folder) and not is_broken_export(folder)
        with raises(ArtifactError, missing=["neuron_config.json", "model.neuron"]):
            read_folder(folder)


@pytest.mark.parametrize("name", ["neuron_config.json", "model.neuron"])
def test_half_export(copy, name):
    (copy / name).unlink()
    assert not is_export(copy) and is_broken_export(copy)
    with raises(ArtifactError, missing=[name]):
        read_folder(copy)


def test_newer_folder_and_invalid_marker_are_refused(copy):
    (copy / "neuron_config.json").write_text("not json")
    with raises(ArtifactError, file=str(copy / "neuron_config.json")) as error:
        read_folder(copy)
    assert error.value.details["error"].startswith("JSONDecodeError")
    (copy / "neuron_config.json").write_text(json.dumps({"version": FOLDER_VERSION + 1, "shapes": "of the future"}))
    with pytest.raises(FormatVersionError) as error:
        read_folder(copy)
    assert error.value.details == {"version": FOLDER_VERSION + 1, "supported": FOLDER_VERSION}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data.clear(), "KeyError: 'version'"),
        (lambda data: data.update(version="new"), "ValueError"),
        (lambda data: data.update(neuron=3), "TypeError"),
        (lambda data: data["neuron"].update(batch_size=0), "ConfigError: batch_size "),
        (lambda data: data["neuron"].update(sequence_length=None), "ConfigError: sequence_length "),
        (lambda data: data["neuron"].pop("prefill_buckets"), "prefill_buckets"),
        (lambda data: data["neuron"].update(batchsize=1), "'batchsize'"),
        (lambda data: data["artifact"].pop("neff_sha256"), "KeyError: 'neff_sha256'"),
        (lambda data: data["artifact"].update(validation=[{}]), "KeyError: 'output'"),
    ],
)
def test_damaged_marker(copy, change, expected):
    data = json.loads((copy / "neuron_config.json").read_text())
    change(data)
    (copy / "neuron_config.json").write_text(json.dumps(data))
    with raises(ArtifactError, file=str(copy / "neuron_config.json")) as error:
        read_folder(copy)
    assert expected in error.value.details["error"]


@pytest.mark.parametrize(("name", "error"), [("model.neuron", ArtifactError), ("model.safetensors", WeightsError)])
def test_changed_file_is_noticed(copy, monkeypatch, name, error):
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)

    def read():
        verify_weights(copy, read_folder(copy).artifact)

    with raises(error, file=str(copy / name), actual=file_hash(copy / name)):
        read()
    monkeypatch.setenv("NEURON_RT_VALIDATE_HASH", "0")
    read()
    (copy / "model.safetensors").unlink()
    with raises(WeightsError, folder=str(copy), missing="model.safetensors"):
        read()
