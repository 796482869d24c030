"""Packed checkpoints: plain safetensors files in which tensors that are used joined are adjacent."""

from __future__ import annotations

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.errors import CacheError
from optimum_neuron.weights import Checkpoint, StateDict, bind_weights, pack_checkpoint
from tests.raising import raises


def spec(*shape, dtype="float32"):
    return TensorSpec(shape=shape, dtype=dtype)


TENSORS = {
    "down": torch.randn(4, 8),
    "gate": torch.randn(8, 4),
    "ids": torch.arange(5),
    "k": torch.randn(2, 4),
    "norm": torch.randn(4),
    "one": torch.tensor(3.0),
    "q": torch.randn(4, 4),
    "unused": torch.randn(100),
    "up": torch.randn(8, 4),
    "v": torch.randn(2, 4),
}
SOURCES = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up"), "tied": ("down",)}
SOURCES |= {name: (name,) for name in ("down", "ids", "norm", "one")}
SPECS = {
    "qkv": spec(8, 4),
    "gate_up": spec(16, 4),
    "down": spec(4, 8),
    "ids": spec(5, dtype="int64"),
    "norm": spec(4),
    "one": spec(),
    "tied": spec(4, 8),
}


@pytest.fixture
def checkpoint(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    return Checkpoint.open(tmp_path)


def test_packed_file_is_plain_checkpoint_with_identical_tensors(checkpoint, tmp_path):
    path = tmp_path / "packed" / "model.safetensors"
    path.parent.mkdir()
    size = pack_checkpoint(checkpoint, SPECS, SOURCES, path, dtype="float32")
    assert size == path.stat().st_size and [entry.name for entry in path.parent.iterdir()] == ["model.safetensors"]
    tensors = load_file(path)
    assert tensors.keys() == TENSORS.keys() - {"unused"}
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype and torch.equal(tensor, TENSORS[name])
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_joined_weights_are_copied_before_and_mapped_after(checkpoint, tmp_path):
    before = bind_weights(SPECS, SOURCES, checkpoint)
    assert before.copied_bytes == SPECS["qkv"].size_bytes + SPECS["gate_up"].size_bytes
    folder = tmp_path / "packed"
    folder.mkdir()
    pack_checkpoint(checkpoint, SPECS, SOURCES, folder / "model.safetensors", dtype="float32")
    after = bind_weights(SPECS, SOURCES, Checkpoint.open(folder))
    assert after.copied_bytes == 0 and after.mapped_bytes == sum(item.size_bytes for item in SPECS.values())
    assert all(torch.equal(after.tensors[name], before.tensors[name]) for name in SPECS)


def test_float_tensors_are_cast_and_others_keep_dtype(checkpoint, tmp_path):
    path = tmp_path / "packed.safetensors"
    pack_checkpoint(checkpoint, SPECS, SOURCES, path, dtype="bfloat16")
    tensors = load_file(path)
    assert tensors["ids"].dtype == torch.int64
    assert torch.equal(tensors["q"], TENSORS["q"].to(torch.bfloat16))


def test_views_empty_tensors_and_sources_in_memory(tmp_path):
    source = StateDict(tensors={"t": torch.randn(3, 2).t(), "none": torch.zeros(0, 4)}, origin="memory")
    specs, sources = {"t": spec(2, 3), "none": spec(0, 4)}, {"t": ("t",), "none": ("none",)}
    pack_checkpoint(source, specs, sources, tmp_path / "m.safetensors", dtype="float32")
    tensors = load_file(tmp_path / "m.safetensors")
    assert torch.equal(tensors["t"], source.tensors["t"]) and tensors["none"].shape == (0, 4)


def test_data_starts_at_multiple_of_64_bytes(checkpoint, tmp_path):
    path = tmp_path / "packed.safetensors"
    pack_checkpoint(checkpoint, SPECS, SOURCES, path, dtype="float32")
    assert (8 + int.from_bytes(path.read_bytes()[:8], "little")) % 64 == 0


def test_equal_tensors_give_equal_bytes_and_replace_older_file(checkpoint, tmp_path):
    first, second = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    second.write_text("older")
    for path in (first, second):
        pack_checkpoint(checkpoint, SPECS, SOURCES, path, dtype="float16")
    assert first.read_bytes() == second.read_bytes()


def test_full_disk_is_reported_and_cleaned_up(checkpoint, disk):
    (disk / "model.safetensors").write_text("older")
    big = StateDict(tensors={"w": torch.zeros(64 * 1024)}, origin="memory")
    with pytest.raises(CacheError) as excinfo:
        pack_checkpoint(big, {"w": spec(64 * 1024)}, {"w": ("w",)}, disk / "model.safetensors", dtype="float32")
    assert excinfo.value.details["needed_bytes"] > 4 * 64 * 1024 > excinfo.value.details["free_bytes"]
    assert [path.name for path in disk.iterdir()] == ["model.safetensors"]
    assert (disk / "model.safetensors").read_text() == "older"
    assert pack_checkpoint(checkpoint, SPECS, SOURCES, disk / "model.safetensors", dtype="float32") > 0


def test_missing_folder_is_reported(checkpoint, tmp_path):
    path = tmp_path / "none" / "m.safetensors"
    with raises(CacheError, path=str(path)):
        pack_checkpoint(checkpoint, SPECS, SOURCES, path, dtype="float32")
