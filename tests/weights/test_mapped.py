"""Tensors as views of one safetensors file; a file that is not whole is refused."""

from __future__ import annotations

import contextlib
import ctypes
import json
import struct

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save, save_file

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.errors import WeightsError
from optimum_neuron.weights import DTYPES, MappedFile, mapped
from optimum_neuron.weights.mapped import MAX_HEADER_BYTES
from tests.raising import raises


def address(file: MappedFile) -> range:
    """Address of the mapped file."""
    start = ctypes.addressof(ctypes.c_char.from_buffer(file._buffer))
    return range(start, start + len(file._buffer))


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


TWO = {"a": entry([2, 2], 0, 16), "b": entry([1, 2], 16, 24)}
DATA = torch.arange(6.0).numpy().tobytes()


def test_tensor_is_view_of_file(tmp_path):
    tensors = {"x": torch.randn(3, 5), "y": torch.arange(4)}
    save_file(tensors, tmp_path / "m.safetensors")
    file = MappedFile.open(tmp_path / "m.safetensors")
    assert file.entries["x"].spec == TensorSpec(shape=(3, 5), dtype="float32")
    for name, expected in tensors.items():
        view, copied = file.get([name])
        assert torch.equal(view, expected) and view.dtype == expected.dtype and not copied
        assert view.data_ptr() in address(file)
        assert view.data_ptr() == file.get([name])[0].data_ptr()


def test_views_outlive_file_and_writes_are_private(tmp_path):
    save_file({"x": torch.ones(4)}, tmp_path / "m.safetensors")
    before = (tmp_path / "m.safetensors").read_bytes()
    view, _ = MappedFile.open(tmp_path / "m.safetensors").get(["x"])
    view.add_(1)
    assert view.tolist() == [2, 2, 2, 2]
    assert (tmp_path / "m.safetensors").read_bytes() == before
    assert MappedFile.open(tmp_path / "m.safetensors").get(["x"])[0].tolist() == [1, 1, 1, 1]


def test_adjacent_tensors_are_one_view(raw_file):
    file = MappedFile.open(raw_file(TWO, DATA))
    joined, copied = file.get(["a", "b"])
    assert joined.tolist() == [[0, 1], [2, 3], [4, 5]] and not copied
    assert joined.data_ptr() == file.get(["a"])[0].data_ptr()


def test_non_adjacent_or_mixed_dtype_tensors_are_not_a_view(raw_file):
    apart = {"a": entry([1, 2], 0, 8), "b": entry([1, 2], 16, 24), "c": entry([1, 4], 8, 16, "F16")}
    file = MappedFile.open(raw_file(apart, DATA))
    assert file.get(["a", "b"]) is None
    assert file.get(["b", "a"]) is None
    assert file.get(["a", "c"]) is None, "neighbors that are not of one dtype"


def test_misaligned_tensor_is_copied_with_a_reason(raw_file):
    header = {"a": entry([1], 0, 1, "U8"), "b": entry([2], 1, 9)}
    file = MappedFile.open(raw_file(json.dumps(header).encode().ljust(128), b"\x07" + DATA[8:16]))
    tensor, copied = file.get(["b"])
    assert tensor.tolist() == [2, 3] and copied and tensor.data_ptr() not in address(file)
    header = {"a": entry([2], 0, 2, "U8"), "one": entry([1], 2, 6)}
    file = MappedFile.open(raw_file(json.dumps(header).encode().ljust(128), b"\x07\x07" + DATA[4:8]))
    assert file.get(["one"])[0].tolist() == [1] and file.get(["one"])[1]


def test_empty_tensors_and_scalars(tmp_path):
    save_file({"none": torch.zeros(0, 3), "one": torch.tensor(2.5)}, tmp_path / "m.safetensors")
    file = MappedFile.open(tmp_path / "m.safetensors")
    none, copied = file.get(["none"])
    assert none.shape == (0, 3) and not copied
    rows = {"a": torch.zeros(0, 3), "b": torch.ones(2, 3)}
    save_file(rows, tmp_path / "rows.safetensors")
    joined = MappedFile.open(tmp_path / "rows.safetensors").get(["a", "b"])
    assert joined is not None and torch.equal(joined[0], rows["b"])
    save_file({}, tmp_path / "empty.safetensors")
    assert MappedFile.open(tmp_path / "empty.safetensors").entries == {}
    assert file.get(["one"])[0].item() == 2.5 and file.get(["one"])[0].shape == ()


@pytest.mark.parametrize("name", sorted(DTYPES.values()))
def test_every_dtype_of_library(name, tmp_path):
    expected = torch.tensor([0.0, 1.0, 2.0]).to(getattr(torch, name))
    save_file({"x": expected}, tmp_path / "m.safetensors")
    tensor, _ = MappedFile.open(tmp_path / "m.safetensors").get(["x"])
    if name == "float8_e8m0fnu":  # powers of two, of which 0 is none
        assert tensor.dtype == expected.dtype and tensor.float().tolist() == [2.0**-127, 1.0, 2.0]
    else:
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor.to(torch.complex64), expected.to(torch.complex64))


def test_buffer_in_memory_is_read_like_file():
    content = save({"x": torch.ones(2)})
    for buffer in (bytearray(content), content):  # of the second one, torch warns that it is for reading only
        assert MappedFile(memoryview(buffer), "inlined weights").get(["x"])[0].tolist() == [1, 1]


HEADERS = {
    "no json": b"{",
    "no text": b"\xff\xfe{}",
    "a list": [],
    "a number": 7,
    "nested": b"[" * 200_000,
    "entry is text": {"a": "F32"},
    "no shape": {"a": {"dtype": "F32", "data_offsets": [0, 24]}},
    "no dtype": {"a": {"shape": [6], "data_offsets": [0, 24]}},
    "unknown dtype": {"a": entry([6], 0, 24, "Q8_0")},
    "negative shape": {"a": entry([-2, -3], 0, 24)},
    "fraction": {"a": entry([6.5], 0, 26)},
    "text in shape": {"a": entry(["6"], 0, 24)},
    "shape is text": {"a": entry("6", 0, 24)},
    "three offsets": {"a": {"dtype": "F32", "shape": [6], "data_offsets": [0, 24, 24]}},
    "past the end": {"a": entry([6], 4, 28)},
    "far past the end": {"a": entry([2**40], 0, 2**42)},
    "backwards": {"a": entry([0], 8, 4)},
    "negative offset": {"a": entry([6], -24, 0)},
    "other size": {"a": entry([5], 0, 24)},
    "second is broken": {"a": entry([6], 0, 24), "b": entry([1], 0, 3)},
    "overlap": {"a": entry([6], 0, 24), "b": entry([2], 0, 8)},
    "hole": {"a": entry([2], 0, 8), "b": entry([2], 16, 24)},
    "rest": {"a": entry([2], 0, 8)},
    "dtype is a list": {"a": entry([6], 0, 24, ["F32"])},
    "true in shape": {"a": entry([True, 6], 0, 24)},
    "huge and empty": {"a": entry([6], 0, 24), "b": entry([0, 10**30], 24, 24)},
    "many dimensions": {"a": entry([6] + [1] * 64, 0, 24)},
    "huge": {"a": entry([6], 0, 24), "b": entry([0, 2**48 + 1], 24, 24)},
}


NAMED = {"unknown dtype": "Q8_0", "many dimensions": "65", "other size": "24"}


@pytest.mark.parametrize("name", HEADERS)
def test_broken_header_is_refused(name, raw_file):
    path = raw_file(HEADERS[name], DATA)
    with pytest.raises(WeightsError) as excinfo:
        MappedFile.open(path)
    assert excinfo.value.details["path"] == str(path)
    assert NAMED.get(name, "") in excinfo.value.message


def test_sizes_at_the_ends_of_ranges_are_read(raw_file):
    """PyTorch has tensors of 64 dimensions."""
    file = MappedFile.open(raw_file({"a": entry([6] + [1] * 63, 0, 24), "b": entry([0, 2**48], 24, 24)}, DATA))
    assert file.get(["a"])[0].dim() == 64 and file.get(["b"])[0].shape == (0, 2**48)


@pytest.mark.parametrize("size", [MAX_HEADER_BYTES + 1, 2**63, 3000])
def test_overlong_header_is_refused_unread(size, raw_file):
    path = raw_file(TWO, DATA, size=size)
    with raises(WeightsError, path=str(path)) as error:
        MappedFile.open(path)
    assert f" {size} " in error.value.details["problem"]


@pytest.mark.parametrize("length", [1, 7, 8, 20, -1])
def test_truncated_file_is_refused(length, raw_file):
    path = raw_file(TWO, DATA)
    content = path.read_bytes()
    path.write_bytes(content[:length])
    with pytest.raises(WeightsError):
        MappedFile.open(path)


def test_unmappable_file_is_refused(tmp_path):
    (tmp_path / "empty").touch()
    for path in (tmp_path / "missing", tmp_path, tmp_path / "empty"):
        with raises(WeightsError, path=str(path)) as error:
            MappedFile.open(path)
        assert "error" in error.value.details


def test_metadata_entry_is_not_a_tensor(tmp_path):
    save_file({"x": torch.ones(1)}, tmp_path / "m.safetensors", metadata={"format": "pt"})
    assert list(MappedFile.open(tmp_path / "m.safetensors").entries) == ["x"]
    (size,) = struct.unpack("<Q", (tmp_path / "m.safetensors").read_bytes()[:8])
    assert b"__metadata__" in (tmp_path / "m.safetensors").read_bytes()[: 8 + size]


def test_library_refuses_the_same_files(raw_file):
    """The reference of what a whole file is."""
    for name in ("overlap", "hole", "rest"):
        with pytest.raises(SafetensorError):
            load(raw_file(HEADERS[name], DATA).read_bytes())
    for size, reason in ((MAX_HEADER_BYTES, "header length"), (MAX_HEADER_BYTES + 1, "header too large")):
        with pytest.raises(SafetensorError, match=reason):
            load(raw_file(TWO, DATA, size=size).read_bytes())


def test_a_header_of_the_largest_size_is_read(raw_file, monkeypatch):
    path = raw_file(TWO, DATA)
    (size,) = struct.unpack("<Q", path.read_bytes()[:8])
    for limit in (size, size - 1):
        monkeypatch.setattr(mapped, "MAX_HEADER_BYTES", limit)
        with contextlib.nullcontext() if limit == size else raises(WeightsError, path=str(path)):
            assert len(MappedFile.open(path).entries) == 2
