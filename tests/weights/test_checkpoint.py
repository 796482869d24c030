"""Checkpoint folders: one file, several files, and folders that are refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from optimum_neuron.errors import WeightsError
from optimum_neuron.weights import Checkpoint, StateDict
from optimum_neuron.weights.checkpoint import weight_files


@pytest.fixture
def sharded(tmp_path):
    """Two files and their index, as transformers writes them."""
    shards = {
        "model-00001-of-00002.safetensors": {"q": torch.full((2, 3), 1.0), "v": torch.full((1, 3), 3.0)},
        "model-00002-of-00002.safetensors": {"k": torch.full((1, 3), 2.0)},
    }
    for name, tensors in shards.items():
        save_file(tensors, tmp_path / name)
    weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    write_index(tmp_path, {"metadata": {"total_size": 48}, "weight_map": weight_map})
    return tmp_path


def write_index(folder, data):
    text = data if isinstance(data, str) else json.dumps(data)
    (folder / "model.safetensors.index.json").write_text(text)


def test_one_file(tmp_path):
    save_file({"a": torch.ones(2, 3), "b": torch.zeros(4, dtype=torch.int64)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    assert {name: str(spec) for name, spec in checkpoint.specs.items()} == {"a": "float32[2, 3]", "b": "int64[4]"}
    assert checkpoint.origin == str(tmp_path)
    tensor, copied = checkpoint.join(["a"])
    assert torch.equal(tensor, torch.ones(2, 3)) and not copied


def test_shards_share_one_namespace_and_joins_across_files_copy(sharded):
    checkpoint = Checkpoint.open(sharded)
    assert checkpoint.specs.keys() == {"q", "k", "v"}
    assert [checkpoint.join([name])[1] for name in "qkv"] == [False] * 3
    joined, copied = checkpoint.join(["q", "k", "v"])
    assert joined[:, 0].tolist() == [1, 1, 2, 3] and copied
    neighbors, copied = checkpoint.join(["q", "v"])
    assert neighbors[:, 0].tolist() == [1, 1, 3] and not copied


def test_neighbors_in_wrong_order_are_copied_in_right_one(sharded):
    joined, copied = Checkpoint.open(sharded).join(["v", "q"])
    assert joined[:, 0].tolist() == [3, 1, 1] and copied


def test_single_file_is_preferred_to_index(sharded):
    save_file({"only": torch.ones(1)}, sharded / "model.safetensors")
    assert weight_files(sharded) == [sharded / "model.safetensors"]


def test_index_of_diffusers(sharded):
    index = sharded / "model.safetensors.index.json"
    index.rename(sharded / "diffusion_pytorch_model.safetensors.index.json")
    assert Checkpoint.open(sharded).specs.keys() == {"q", "k", "v"}
    save_file({"only": torch.ones(1)}, sharded / "diffusion_pytorch_model.safetensors")
    assert weight_files(sharded) == [sharded / "diffusion_pytorch_model.safetensors"]


def test_missing_shards_are_all_named(sharded):
    for path in sharded.glob("model-*"):
        path.unlink()
    with pytest.raises(WeightsError) as excinfo:
        Checkpoint.open(sharded)
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert excinfo.value.details["missing"] == names and all(name in excinfo.value.message for name in names)


@pytest.mark.parametrize("name", ["../secret.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ""])
def test_index_cannot_name_files_outside_folder(name, tmp_path):
    folder = tmp_path / "checkpoint"
    (folder / "sub").mkdir(parents=True)
    save_file({"x": torch.ones(1)}, tmp_path / "secret.safetensors")
    save_file({"x": torch.ones(1)}, folder / "sub" / "model.safetensors")
    write_index(folder, {"weight_map": {"x": name}})
    with pytest.raises(WeightsError) as excinfo:
        Checkpoint.open(folder)
    details = excinfo.value.details
    assert (details["key"], details["value"]) == ("weight_map.x", name)


@pytest.mark.parametrize("data", ["{", "[]", {}, {"weight_map": []}, {"weight_map": {"x": 3, "y": "z"}}], ids=str)
def test_unreadable_index_is_refused(data, tmp_path):
    write_index(tmp_path, data)
    with pytest.raises(WeightsError) as error:
        Checkpoint.open(tmp_path)
    details = error.value.details
    assert str(tmp_path / "model.safetensors.index.json") in (details.get("file"), details.get("path"))
    assert not details.get("missing")


def test_folder_without_safetensors_is_an_error_naming_pickles(tmp_path):
    for folder, pickles in ((tmp_path, []), (tmp_path / "missing", []), (tmp_path, ["pytorch_model.bin"])):
        for name in pickles:
            torch.save({"x": torch.ones(1)}, folder / name)
        with pytest.raises(WeightsError) as excinfo:
            Checkpoint.open(folder)
        assert excinfo.value.details == {"path": str(folder), "pickles": pickles}
        assert ("pickles" in excinfo.value.message) == bool(pickles)


def test_weights_under_another_name_are_named(tmp_path):
    (tmp_path / "model.fp16.safetensors").touch()
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(WeightsError) as excinfo:
        weight_files(tmp_path)
    assert excinfo.value.details == {"path": str(tmp_path), "files": ["model.fp16.safetensors"]}


def test_tensors_in_memory_are_a_source():
    source = StateDict(tensors={"a": torch.ones(1, 2), "b": torch.zeros(2, 2)}, origin="memory")
    assert str(source.specs["b"]) == "float32[2, 2]"
    assert source.join(["a"])[0].tolist() == [[1, 1]] and source.join(["a"])[1]
    assert source.join(["b", "a"])[0].tolist() == [[0, 0], [0, 0], [1, 1]]
