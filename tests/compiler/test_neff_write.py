"""Writing NEFFs: the published header, deterministic bytes, refusals."""

from __future__ import annotations

import hashlib
import io
import struct
import tarfile
import uuid

import pytest

from optimum_neuron.compiler.neff import NeffHeader, open_neff, write_neff
from optimum_neuron.errors import ArtifactError, ConfigError

FACTS = dict(name="bert", target="inf2", core_version=2, compiler_version="2.21.5", metadata={"task": "fill-mask"})


def test_header_fields_lie_at_the_published_offsets(tmp_path):
    write_neff(tmp_path / "m.neff", {"a": b"1"}, num_cores=2, lnc_size=1, **FACTS)
    raw = (tmp_path / "m.neff").read_bytes()
    data = raw[1024:]
    # Offsets of the C struct in the Neuron SDK documentation, "Work with NEFF Files".
    assert struct.unpack_from("<5Q", raw, 0) == (1, 1024, len(data), 1, 0)
    assert raw[40:168] == b"2.21.5".ljust(128, b"\0")
    assert struct.unpack_from("<I", raw, 168) == (2,)
    assert raw[172:204] == hashlib.sha256(data).digest()
    assert uuid.UUID(bytes=raw[204:220]).version == 5
    assert raw[220:476] == b"bert".ljust(256, b"\0")
    assert struct.unpack_from("<I", raw, 476) == (2,)
    assert raw[480:544] == bytes(64)
    assert struct.unpack_from("<QI", raw, 544) == (0, 1)
    assert raw[556:1024] == bytes(468)


def test_the_data_part_is_a_plain_tar_with_sorted_anonymous_members(tmp_path):
    write_neff(tmp_path / "m.neff", {"sg00/def.json": b"{}", "a": b"x" * 600}, **FACTS)
    data = io.BytesIO((tmp_path / "m.neff").read_bytes()[1024:])
    with tarfile.open(fileobj=data, mode="r:") as archive:
        infos = archive.getmembers()
        assert archive.extractfile("a").read() == b"x" * 600
    assert [info.name for info in infos] == ["a", "neff.json", "sg00/def.json"]
    assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info in infos} == {(0, 0, 0, "", 0o644)}


def test_equal_content_gives_equal_bytes_whatever_it_comes_from(tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(b"w" * 3_000_000)
    first, second = tmp_path / "1.neff", tmp_path / "2.neff"
    header = write_neff(first, {"a": b"1", "weights": source}, **FACTS)
    again = write_neff(second, {"weights": memoryview(source.read_bytes()), "a": memoryview(b"1")}, **FACTS)
    assert first.read_bytes() == second.read_bytes()
    assert header == again
    changed = write_neff(second, {"weights": source, "a": b"2"}, **FACTS)
    assert changed.uuid != header.uuid


def test_a_name_of_any_length_survives(tmp_path):
    name = "/".join(["block" * 20] * 3) + "/weights.bin"
    write_neff(tmp_path / "m.neff", {name: b"x", "empty": b""}, **FACTS)
    with open_neff(tmp_path / "m.neff") as neff:
        assert bytes(neff.read(name)) == b"x"
        assert bytes(neff.read("empty")) == b""


def test_all_bad_members_are_listed_and_nothing_is_written(tmp_path):
    members = {
        "/etc/passwd": b"",
        "../up": b"",
        "C:\\x": b"",
        "a//b": b"",
        "d": b"",
        "d/e": b"",
        "neff.json": b"",
        "missing": tmp_path / "no",
    }
    with pytest.raises(ArtifactError) as refused:
        write_neff(tmp_path / "m.neff", members, **FACTS)
    parts = ["climbs", "is absolute", "backslash", "has an empty", "is a file and", "is reserved", "which is no file"]
    assert all(part in problem for part, problem in zip(parts, refused.value.details["problems"], strict=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"name": "n" * 256}, "name has 256 bytes, 255 fit"),
        ({"compiler_version": "v" * 128}, "compiler_version has 128 bytes, 127 fit"),
        ({"name": "a\0b"}, "cannot be printed"),
        ({"core_version": 0}, "core_version is 0"),
        ({"num_cores": True}, "num_cores is a bool"),
        ({"target": None}, "target is a NoneType"),
        ({"metadata": {"x": object()}}, "metadata.x is a object"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, change, part):
    with pytest.raises(ConfigError, match=part):
        write_neff(tmp_path / "m.neff", {}, **{**FACTS, **change})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_older_neff(tmp_path):
    path = tmp_path / "m.neff"
    write_neff(path, {"a": b"old"}, **FACTS)
    before = path.read_bytes()
    with pytest.raises(ArtifactError):
        write_neff(path, {"a": tmp_path / "gone"}, **FACTS)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.neff"]


def test_header_round_trip():
    header = NeffHeader(data_size=7, build_version="1", num_tpb=3, hash=bytes(range(32)), name="n\u00fc", lnc_size=2)
    assert NeffHeader.unpack(header.pack()) == header
