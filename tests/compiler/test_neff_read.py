"""Opening NEFFs: everything that is refused, and members without copies."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import tarfile

import pytest

from optimum_neuron.compiler.neff import NeffDocument, neff_from_bytes, open_neff, unpack, write_neff
from optimum_neuron.errors import ArtifactError, FormatVersionError

FACTS = dict(name="bert", target="inf2", core_version=2, compiler_version="2.21.5", metadata={"task": "fill-mask"})


@pytest.fixture
def path(tmp_path):
    write_neff(tmp_path / "model.neuron", {"ir.json": b'{"nodes": []}', "tensors/w": bytes(range(256)) * 16}, **FACTS)
    return tmp_path / "model.neuron"


def forged(path, infos, *, document=None, tail=b""):
    """A NEFF with a right hash and header around a tar that our writer would never make."""
    document = document or NeffDocument(**FACTS)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        content = document.to_json()
        info = tarfile.TarInfo("neff.json")
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
        for info in infos:
            archive.addfile(info, io.BytesIO(bytes(info.size)) if info.isreg() else None)
    data = buffer.getvalue() + tail
    header = document.header(data_size=len(data), digest=hashlib.sha256(data).digest())
    path.write_bytes(header.pack() + data)
    return path


def tar_info(name, kind=tarfile.REGTYPE, linkname="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, linkname, size
    return info


def test_members_are_views_of_the_mapped_file(path):
    with open_neff(path) as neff:
        assert neff.names == ("ir.json", "tensors/w")
        view = neff.read("tensors/w")
        assert view.readonly and bytes(view) == bytes(range(256)) * 16
        assert type(view.obj).__name__ == "mmap"
    assert view[1] == 1, "a view outlives the NEFF"
    with pytest.raises(ArtifactError, match="closed"):
        neff.read("tensors/w")


def test_bytes_in_memory_are_opened_like_a_file(path):
    content = path.read_bytes()
    with open_neff(path) as neff:
        assert bytes(neff.content) == content and neff.content.readonly
    with pytest.raises(ArtifactError, match="the whole file .*closed"):
        neff.content  # noqa: B018
    again = neff_from_bytes(memoryview(content), "model.pt")
    assert again.names == neff.names and bytes(again.read("tensors/w")) == bytes(range(256)) * 16
    for position in (5, 40, 1500, len(content) - 1):
        damaged = bytearray(content)
        damaged[position] ^= 1
        with pytest.raises(ArtifactError, match="open model.pt"):
            neff_from_bytes(memoryview(damaged), "model.pt")
    with pytest.raises(ArtifactError, match="too short"):
        neff_from_bytes(memoryview(b""), "model.pt")


def test_a_member_offset_is_aligned_for_tensors(path):
    raw = path.read_bytes()
    with open_neff(path) as neff:
        assert raw.index(bytes(neff.read("tensors/w"))) % 512 == 0


def test_an_unknown_member_names_the_nearest(path):
    with open_neff(path) as neff, pytest.raises(ArtifactError, match="did you mean 'ir.json'"):
        neff.read("ir.jsn")


def test_to_dict_describes_the_file(path):
    with open_neff(path) as neff:
        facts = json.loads(json.dumps(neff.to_dict()))
    assert facts["size_bytes"] == path.stat().st_size
    assert facts["members"] == [{"name": "ir.json", "size_bytes": 13}, {"name": "tensors/w", "size_bytes": 4096}]
    assert (facts["target"], facts["core_version"], facts["metadata"]) == ("inf2", 2, {"task": "fill-mask"})


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match="no such file"):
        open_neff(tmp_path / "none")
    with pytest.raises(ArtifactError, match="not a regular file"):
        open_neff(tmp_path)


def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtifactError, match="not a regular file"):
        open_neff(tmp_path / "pipe")


@pytest.mark.parametrize("content", [b"", b"x" * 1023])
def test_a_file_shorter_than_the_header_is_refused(tmp_path, content):
    (tmp_path / "short").write_bytes(content)
    with pytest.raises(ArtifactError, match="too short"):
        open_neff(tmp_path / "short")


@pytest.mark.parametrize("content", [b"PK\x03\x04" + bytes(5000), bytes(5000), b"{}" * 3000])
def test_another_kind_of_file_is_refused(tmp_path, content):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ArtifactError, match="not a NEFF"):
        open_neff(tmp_path / "other")


def test_a_neff_of_the_vendors_compiler_is_refused_as_such(path):
    raw = bytearray(path.read_bytes())
    raw[0] = 2
    path.write_bytes(raw)
    with pytest.raises(ArtifactError, match="for real hardware"):
        open_neff(path)


@pytest.mark.parametrize("cut", [1, 512, 5000])
def test_a_truncated_file_is_refused(path, cut):
    raw = path.read_bytes()
    path.write_bytes(raw[:-cut])
    with pytest.raises(ArtifactError, match="truncated"):
        open_neff(path, verify=False)


def test_trailing_bytes_are_refused(path):
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ArtifactError, match="longer than it should be"):
        open_neff(path)


def test_a_newer_format_is_refused_by_header_and_by_document(path, tmp_path):
    raw = bytearray(path.read_bytes())
    raw[24] = 2
    path.write_bytes(raw)
    with pytest.raises(FormatVersionError, match="format version 2.0"):
        open_neff(path)
    document = NeffDocument(**FACTS, format_version=9)
    newer = forged(tmp_path / "newer", [], document=document)
    with pytest.raises(FormatVersionError, match="version 9"):
        open_neff(newer)
    raw = bytearray(newer.read_bytes())
    raw[24] = 1
    newer.write_bytes(raw)
    with pytest.raises(FormatVersionError, match="version 9"):
        open_neff(newer)


def test_a_flipped_byte_anywhere_never_loads(path):
    raw = path.read_bytes()
    fields = [0, 8, 16, 24, 32, 40, 150, 168, 172, 204, 220, 300, 476, 480, 543, 544, 552, 556, 1023]
    chosen = random.Random(0).sample(range(1024, len(raw)), 40)
    for offset in [*fields, *chosen, len(raw) - 1]:
        damaged = bytearray(raw)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        with pytest.raises(ArtifactError):
            open_neff(path)


def test_damage_is_told_as_a_hash_that_does_not_match(path):
    raw = bytearray(path.read_bytes())
    raw[-3000] ^= 1
    path.write_bytes(raw)
    with pytest.raises(ArtifactError, match="does not have the hash"):
        open_neff(path)


def test_a_changed_header_is_found_without_hashing(path):
    raw = bytearray(path.read_bytes())
    raw[220:224] = b"gpt2"
    path.write_bytes(raw)
    with pytest.raises(ArtifactError, match="header does not agree"):
        open_neff(path, verify=False)


@pytest.mark.parametrize(
    ("info", "part"),
    [
        (tar_info("/etc/passwd"), "is absolute"),
        (tar_info("../../etc/passwd"), "climbs out"),
        (tar_info("a/../../b"), "climbs out"),
        (tar_info("C:\\windows"), "drive letter"),
        (tar_info("C:x"), "drive letter"),
        (tar_info("a\\b"), "backslash"),
        (tar_info("./a"), "'.' part"),
        (tar_info("a\nb"), "not printable"),
        (tar_info("l", tarfile.SYMTYPE, "/etc/passwd"), "link to '/etc/passwd'"),
        (tar_info("l", tarfile.LNKTYPE, "neff.json"), "link to 'neff.json'"),
        (tar_info("d", tarfile.DIRTYPE), "folder entry"),
        (tar_info("d", tarfile.CHRTYPE), "device"),
        (tar_info("d", tarfile.BLKTYPE), "device"),
        (tar_info("d", tarfile.FIFOTYPE), "pipe"),
        (tar_info("neff.json"), "there twice"),
        (tar_info("neff.json/x"), "also the folder"),
    ],
)
def test_unsafe_members_are_refused(tmp_path, info, part):
    with pytest.raises(ArtifactError) as refused:
        open_neff(forged(tmp_path / "bad", [info]))
    assert part in str(refused.value)


def test_all_unsafe_members_are_listed_at_once(tmp_path):
    with pytest.raises(ArtifactError, match=r"(?s)link to.*absolute"):
        open_neff(forged(tmp_path / "bad", [tar_info("/a"), tar_info("l", tarfile.SYMTYPE, "x")]))


def test_members_behind_a_damaged_tar_header_are_not_lost_silently(tmp_path):
    path = forged(tmp_path / "bad", [tar_info("a", size=700), tar_info("b", size=700)])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"b\0", 2048)] = ord("c")  # the checksum of that member's header is wrong now
    header = NeffDocument(**FACTS).header(data_size=len(raw) - 1024, digest=hashlib.sha256(raw[1024:]).digest())
    path.write_bytes(header.pack() + raw[1024:])
    with pytest.raises(ArtifactError, match="does not end behind its last member"):
        open_neff(path)


def test_a_chain_of_name_headers_is_refused_without_a_crash(tmp_path):
    link = tar_info("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=2).tobuf(tarfile.GNU_FORMAT) + b"a".ljust(
        512, b"\0"
    )
    data = link * 3000 + bytes(1024)
    header = NeffDocument(**FACTS).header(data_size=len(data), digest=hashlib.sha256(data).digest())
    (tmp_path / "bad").write_bytes(header.pack() + data)
    with pytest.raises(ArtifactError, match="the tar cannot be read"):
        open_neff(tmp_path / "bad")


def test_data_behind_the_end_of_the_tar_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="does not end behind its last member"):
        open_neff(forged(tmp_path / "bad", [], tail=b"x" * 512))


@pytest.mark.parametrize("size_field", [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"77777777777\0"])
def test_absurd_member_sizes_are_refused(tmp_path, size_field):
    path = forged(tmp_path / "bad", [tar_info("zz", size=10)])
    raw = bytearray(path.read_bytes())
    start = raw.index(b"zz\0", 1024)
    raw[start + 124 : start + 136] = size_field
    raw[start + 148 : start + 156] = b" " * 8
    raw[start + 148 : start + 156] = b"%06o\0 " % sum(raw[start : start + 512])
    header = NeffDocument(**FACTS).header(data_size=len(raw) - 1024, digest=hashlib.sha256(raw[1024:]).digest())
    path.write_bytes(header.pack() + raw[1024:])
    with pytest.raises(ArtifactError):
        open_neff(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"format_version": 1}'])
def test_an_unusable_document_is_refused(tmp_path, content, monkeypatch):
    monkeypatch.setattr(NeffDocument, "to_json", lambda self: content)
    with pytest.raises(ArtifactError, match="neff.json cannot be used"):
        open_neff(forged(tmp_path / "bad", []))


def test_unpack_of_an_unsafe_file_writes_nothing(tmp_path):
    bad = forged(tmp_path / "bad", [tar_info("../../evil", size=3)])
    with pytest.raises(ArtifactError, match="climbs out"):
        unpack(bad, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]
