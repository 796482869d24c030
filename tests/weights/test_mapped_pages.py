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
    again = Checkpoint.open(file.parent).join(["w"])[0]
    assert total == pytest.approx(float(again.sum()), rel=1e-3)


def test_a_tensor_is_read_again_and_a_buffer_has_no_pages(file):
    mapped = MappedFile.open(file)
    before = mapped.get(["w"])[0].sum()
    mapped.drop_pages(["w"])
    assert resident_kib(file) <= mmap.PAGESIZE // 1024 * 2
    assert mapped.get(["w"])[0].sum() == before
    MappedFile(memoryview(file.read_bytes()), "bytes").drop_pages(["w"])
