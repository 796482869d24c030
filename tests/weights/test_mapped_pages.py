"""Memory of a mapped checkpoint whose tensors were copied."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.weights import Checkpoint, MappedFile, Shard, Shards, bind_weights, even_split
from optimum_neuron.weights.mapped import drop_pages_of

ROWS, COLUMNS = 2048, 1024


def resident_kib(path: Path) -> int:
    """Memory of this process that holds pages of a file."""
    text = Path("/proc/self/smaps").read_text()
    return sum(int(size) for size in re.findall(rf"{re.escape(str(path))}\n.*?Rss: +(\d+)", text, re.DOTALL))


@pytest.fixture
def file(tmp_path):
    save_file({"w": torch.randn(ROWS, COLUMNS)}, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize(("dim", "copied"), [(0, False), (1, True)])
def test_a_tensor_that_was_copied_leaves_the_memory_of_its_file(file, dim, copied):
    local = [ROWS, COLUMNS]
    local[dim] //= 2
    shards = Shards(2, {"w": Shard(dim, (even_split(2 * local[dim], 2),))})
    specs = {"w": TensorSpec(shape=tuple(local), dtype="float32")}
    bound = bind_weights(specs, {"w": ("w",)}, Checkpoint.open(file.parent), shards)
    total = sum(float(tensor.sum()) for tensor in bound.tensors.values())
    assert bool(bound.copied_bytes) == copied
    assert (resident_kib(file) < 100) == copied
    for name in () if copied else bound.tensors:
        bound.tensors.forget(name)
    assert resident_kib(file) < 100
    again = Checkpoint.open(file.parent).join(["w"])[0]
    assert total == pytest.approx(float(again.sum()), rel=1e-3)


def test_a_tensor_is_read_again_and_a_buffer_has_no_pages(file):
    mapped = MappedFile.open(file)
    before = mapped.get(["w"])[0].sum()
    mapped.drop_pages(["w"])
    assert resident_kib(file) <= mmap.PAGESIZE // 1024 * 2
    assert mapped.get(["w"])[0].sum() == before
    MappedFile(memoryview(file.read_bytes()), "bytes").drop_pages(["w"])


def test_a_system_without_such_advice_keeps_pages(file, monkeypatch):
    mapped = MappedFile.open(file)
    mapped.get(["w"])[0].sum()
    monkeypatch.delattr(mmap, "MADV_DONTNEED")
    mapped.drop_pages(["w"])
    assert resident_kib(file) > 1024


def test_a_view_leaves_the_memory_of_its_own_file(tmp_path):
    """A tensor of another file, or of none, changes nothing; so does a file within another one, whose place counts."""
    tensors = {name: torch.randn(ROWS, COLUMNS) for name in "ab"}
    for name, tensor in tensors.items():
        save_file({"w": tensor}, tmp_path / f"{name}.safetensors")
    files = {name: MappedFile.open(tmp_path / f"{name}.safetensors") for name in tensors}
    views = {name: files[name].get(["w"])[0] for name in files}
    sums = {name: tensor.sum() for name, tensor in tensors.items()}
    for dropped, kept in ("ab", "ba"):
        assert {name: view.sum() for name, view in views.items()} == sums
        for tensor in (torch.ones(ROWS, COLUMNS), views[dropped]):
            drop_pages_of(tensor)
        assert resident_kib(tmp_path / f"{dropped}.safetensors") < 100 < resident_kib(tmp_path / f"{kept}.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "whole").write_bytes(bytes(len(content)) + content)
    with open(tmp_path / "whole", "rb") as opened:
        buffer = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY))
    inner = MappedFile(buffer[len(content) :], "inner")
    assert inner.get(["w"])[0].sum() == sums["a"]
    inner.drop_pages(["w"])
    assert resident_kib(tmp_path / "whole") < 100 and inner.get(["w"])[0].sum() == sums["a"]


def test_neighbors_keep_what_was_written_to_them(tmp_path):
    """Pages that a tensor shares with others are not dropped: a private mapping would forget what was written."""
    sizes = {"a": mmap.PAGESIZE * 3 // 8, "b": mmap.PAGESIZE // 8, "c": mmap.PAGESIZE, "d": mmap.PAGESIZE // 8}
    save_file({name: torch.zeros(size) for name, size in sizes.items()}, tmp_path / "m.safetensors")
    mapped = MappedFile.open(tmp_path / "m.safetensors")
    for name in sizes:
        mapped.get([name])[0].fill_(1)
    mapped.drop_pages(["b", "c"])
    left = {name: int((mapped.get([name])[0] == 1).sum()) for name in sizes}
    assert left["a"] == sizes["a"] and left["b"] == sizes["b"] and left["d"] == sizes["d"]
    assert 0 < left["c"] < 2 * mmap.PAGESIZE // 4, "only parts of its first and last page are shared"
