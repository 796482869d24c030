"""Headers of GGUF files: what the package gguf of llama.cpp writes is read, and what its specification excludes is not.

Damaged headers are written byte by byte, as ggml's `docs/gguf.md` describes them.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest

from optimum_neuron.errors import WeightsError
from optimum_neuron.weights.gguf_file import GgufFile
from tests.raising import raises

gguf = pytest.importorskip("gguf")

EXTREMES = {
    **{"UINT8": 255, "INT8": -128, "UINT16": 65535, "INT16": -(2**15), "UINT32": 2**32 - 1, "INT32": -(2**31)},
    **{"UINT64": 2**64 - 1, "INT64": -(2**63), "FLOAT32": 0.5, "FLOAT64": 1e300, "BOOL": True, "STRING": "\u00e9"},
}
"""A value of each type of a setting that a narrower type could not have."""


@pytest.mark.parametrize("alignment", [1, 64])
def test_settings_of_every_type_and_alignments_are_read(alignment, tmp_path):
    tensors = {"odd": np.arange(3, dtype=np.float32), "next": np.arange(8, dtype=np.float16).reshape(2, 4)}
    tensors["experts"] = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_custom_alignment(alignment)
    for kind, value in EXTREMES.items():
        writer.add_key_value(f"of.{kind}", value, gguf.GGUFValueType[kind])
    lists = {"short": list(range(1024)), "long": list(range(1025)), "words": ["a", "b"]}
    for name, values in lists.items():
        writer.add_array(f"list.{name}", values)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    file = GgufFile.open(tmp_path / "m.gguf")
    assert {kind: file.settings[f"of.{kind}"] for kind in EXTREMES} == EXTREMES
    assert file.settings["list.short"] == tuple(range(1024))
    assert file.settings["list.long"] is None and file.settings["list.words"] is None
    assert list(file.entries) == list(tensors)
    for name, tensor in tensors.items():
        assert file.entries[name].shape == tensor.shape and file.entries[name].begin % alignment == 0
        assert bytes(file.rows(name).numpy().ravel()) == tensor.tobytes()
        assert file.rows(name).shape == (*tensor.shape[:-1], tensor.nbytes * tensor.shape[-1] // tensor.size)
    theirs = {tensor.name: (tensor.data_offset, tensor.tensor_type) for tensor in gguf.GGUFReader(file.name).tensors}
    assert {name: (entry.begin, entry.type_number) for name, entry in file.entries.items()} == theirs


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(*, version: int = 3, tensors: tuple[bytes, ...] = (), settings: tuple[bytes, ...] = ()) -> bytes:
    counts = struct.pack("<IQQ", version, len(tensors), len(settings))
    return b"GGUF" + counts + b"".join(settings) + b"".join(tensors)


def tensor(*shape: int, kind: int = 0, offset: int = 0) -> bytes:
    """The place of a tensor; shapes are in ggml's order, and the type 0 is float32."""
    return text(b"t") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


ALIGNMENT = text(b"general.alignment")
REFUSED = {
    "alignment of text": header(settings=(ALIGNMENT + struct.pack("<I", 8) + text(b"64"),)),
    "alignment of zero": header(settings=(ALIGNMENT + struct.pack("<II", 4, 0),)),
    "an axis of zero": header(tensors=(tensor(32, 0),)),
    "five axes": header(tensors=(tensor(1, 1, 1, 1, 1),)),
    "half a block": header(tensors=(tensor(16, 2, kind=8),)),
    "no axes": header(tensors=(tensor(),)),
    "text beyond the end": header(settings=(struct.pack("<Q", 1000),)),
    "type of a setting": header(settings=(text(b"a") + struct.pack("<I", 13),)),
    "type of a tensor": header(tensors=(tensor(32, kind=999),)),
    "magic": b"GGML" + header()[4:],
    "version 1": header(version=1),
    "version 4": header(version=4),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_damaged_headers_are_refused(case):
    with pytest.raises(WeightsError) as failure:
        GgufFile(memoryview(REFUSED[case].ljust(512, b"\0")), "damaged.gguf")
    assert failure.value.details["path"] == "damaged.gguf" and failure.value.details["problem"]


def test_files_that_cannot_be_mapped_are_named(tmp_path):
    (tmp_path / "empty.gguf").touch()
    for name in ("empty.gguf", "missing.gguf"):
        with raises(WeightsError, path=str(tmp_path / name)):
            GgufFile.open(tmp_path / name)


def test_a_tensor_has_up_to_four_axes():
    assert GgufFile(memoryview(header(version=2)), "m.gguf").settings == {}
    whole = header(tensors=(tensor(4, 3, 2, 1),))
    assert GgufFile(memoryview(whole.ljust(512, b"\0")), "m.gguf").entries["t"].shape == (1, 2, 3, 4)


def test_the_last_tensor_ends_with_the_file():
    """Two tensors of 32 float32, the second one directly behind the first; without its last byte, it is named."""
    places = header(tensors=(tensor(32), text(b"u") + tensor(32, offset=128)[len(text(b"t")) :]))
    start = -(-len(places) // 32) * 32
    whole = places.ljust(start, b"\0") + np.arange(64, dtype=np.float32).tobytes()
    file = GgufFile(memoryview(bytearray(whole)), "m.gguf")
    assert file.rows("u").numpy().tobytes() == whole[-128:]
    assert (file.entries["t"].begin, file.entries["u"].end) == (start, len(whole))
    with pytest.raises(WeightsError) as failure:
        GgufFile(memoryview(bytearray(whole[:-1])), "m.gguf")
    assert failure.value.details["tensors"] == ["u"]
    names = "abcdef"
    places = header(tensors=tuple(text(name.encode()) + tensor(32)[len(text(b"t")) :] for name in names))
    with pytest.raises(WeightsError) as failure:
        GgufFile(memoryview(places), "m.gguf")
    assert failure.value.details["tensors"] == [*names] and "a, b, c, d, and 2 more" in failure.value.message


def lists(depth: int) -> bytes:
    """The header of a setting of lists within lists, the innermost one with a byte."""
    return header(settings=(text(b"a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * (depth - 1) + b"\0" * 13,))


def test_lists_within_lists_end():
    """A file of 12 KB must not exhaust the stack."""
    assert GgufFile(memoryview(lists(5)), "m.gguf").settings == {"a": None}
    for depth in (6, 1000):
        with raises(WeightsError, path="deep.gguf", max_depth=4):
            GgufFile(memoryview(lists(depth)), "deep.gguf")


def test_a_file_that_ends_within_its_header_is_refused():
    whole = header(settings=(ALIGNMENT + struct.pack("<II", 4, 64), text(b"a") + struct.pack("<I", 8) + text(b"word")))
    assert GgufFile(memoryview(whole), "m.gguf").settings == {"general.alignment": 64, "a": "word"}
    for length in range(len(whole)):
        with raises(WeightsError, path="cut.gguf"):
            GgufFile(memoryview(whole[:length]), "cut.gguf")
