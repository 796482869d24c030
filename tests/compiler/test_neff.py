"""NEFFs: the published header, deterministic bytes, everything that is refused, and members without copies."""

import hashlib
import io
import json
import os
import random
import struct
import tarfile
import uuid

import pytest

from optimum_neuron.compiler.neff import check_target, neff_from_bytes, open_neff, unpack, write_neff
from optimum_neuron.compiler.neff.document import NeffDocument, NeffHeader
from optimum_neuron.errors import ArtifactError, ConfigError, FormatVersionError, TargetMismatchError
from tests.raising import raises

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
    return write_with_header(path, buffer.getvalue() + tail, document)


def write_with_header(path, data, document=None):
    document = document or NeffDocument(**FACTS)
    header = document.header(data_size=len(data), digest=hashlib.sha256(data).digest())
    path.write_bytes(header.pack() + data)
    return path


def tar_info(name, kind=tarfile.REGTYPE, linkname="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, linkname, size
    return info


def test_members_are_views_of_mapped_file(path):
    with open_neff(path) as neff:
        assert neff.names == ("ir.json", "tensors/w")
        view = neff.read("tensors/w")
        assert view.readonly and bytes(view) == bytes(range(256)) * 16 and type(view.obj).__name__ == "mmap"
    assert view[1] == 1, "a view outlives the NEFF"
    with raises(ArtifactError, reason="closed"):
        neff.read("tensors/w")


def test_bytes_in_memory_are_opened_like_file(path):
    content = path.read_bytes()
    with open_neff(path) as neff:
        assert bytes(neff.content) == content and neff.content.readonly
    with raises(ArtifactError, reason="closed"):
        neff.content  # noqa: B018
    second = neff_from_bytes(memoryview(content), "model.pt")
    assert second.names == neff.names and bytes(second.read("tensors/w")) == bytes(range(256)) * 16
    for position in (5, 40, 1500, len(content) - 1):
        damaged = bytearray(content)
        damaged[position] ^= 1
        with raises(ArtifactError, path="model.pt"):
            neff_from_bytes(memoryview(damaged), "model.pt")
    with raises(ArtifactError, path="model.pt", reason="too_short"):
        neff_from_bytes(memoryview(b""), "model.pt")


def test_member_offset_is_aligned_for_tensors(path):
    raw = path.read_bytes()
    with open_neff(path) as neff:
        assert raw.index(bytes(neff.read("tensors/w"))) % 512 == 0


def test_unknown_member_is_refused(path):
    with open_neff(path) as neff, raises(ArtifactError, reason="no_member", member="ir.jsn"):
        neff.read("ir.jsn")


def test_to_dict_describes_file(path):
    with open_neff(path) as neff:
        facts = json.loads(json.dumps(neff.to_dict()))
    assert facts["size_bytes"] == path.stat().st_size
    assert facts["members"] == [{"name": "ir.json", "size_bytes": 13}, {"name": "tensors/w", "size_bytes": 4096}]
    assert (facts["target"], facts["core_version"], facts["metadata"]) == ("inf2", 2, {"task": "fill-mask"})


def test_missing_file_and_folder_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # is refused without waiting for a writer
    for name, reason in (("none", "missing"), (".", "no_file"), ("pipe", "no_file")):
        with raises(ArtifactError, path=str(tmp_path / name), reason=reason):
            open_neff(tmp_path / name)


NO_NEFF = {
    "empty": (lambda raw: b"", "too_short"),
    "short": (lambda raw: b"x" * 1023, "too_short"),
    "zip": (lambda raw: b"PK\x03\x04" + bytes(5000), "no_neff"),
    "zeros": (lambda raw: bytes(5000), "no_neff"),
    "text": (lambda raw: b"{}" * 3000, "no_neff"),
    "the vendor's": (lambda raw: b"\2" + raw[1:], "real_hardware"),
    "cut by 1": (lambda raw: raw[:-1], "other_size"),
    "cut by 512": (lambda raw: raw[:-512], "other_size"),
    "cut by 5000": (lambda raw: raw[:-5000], "other_size"),
    "too long": (lambda raw: raw + b"\0", "other_size"),
    "other name in the header": (lambda raw: raw[:220] + b"gpt2" + raw[224:], "altered_header"),
}


@pytest.mark.parametrize(("change", "reason"), NO_NEFF.values(), ids=NO_NEFF)
def test_incomplete_neff_is_refused_without_hashing(path, change, reason):
    path.write_bytes(change(path.read_bytes()))
    with raises(ArtifactError, path=str(path), reason=reason):
        open_neff(path, verify=False)


def test_newer_format_is_refused_by_header_and_by_document(path, tmp_path):
    raw = bytearray(path.read_bytes())
    raw[24] = 2
    path.write_bytes(raw)
    with pytest.raises(FormatVersionError) as error:
        open_neff(path)
    assert error.value.details["format_version"] == "2.0"
    newer = forged(tmp_path / "newer", [], document=NeffDocument(**FACTS, format_version=9))
    for major, version in ((9, "9.0"), (1, "9")):
        raw = bytearray(newer.read_bytes())
        raw[24] = major
        newer.write_bytes(raw)
        with pytest.raises(FormatVersionError) as error:
            open_neff(newer)
        assert error.value.details["format_version"] == version


def test_flipped_byte_anywhere_never_loads(path):
    raw = path.read_bytes()
    fields = [0, 8, 16, 24, 32, 40, 150, 168, 172, 204, 220, 300, 476, 480, 543, 544, 552, 556, 1023]
    choice = random.Random(0).sample(range(1024, len(raw)), 40)
    for offset in [*fields, *choice, len(raw) - 1]:
        damaged = bytearray(raw)
        damaged[offset] ^= 1 << offset % 8
        path.write_bytes(damaged)
        with raises(ArtifactError, path=str(path), **({"reason": "altered_content"} if offset >= 1024 else {})):
            open_neff(path)


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
    with pytest.raises(ArtifactError) as excinfo:
        open_neff(forged(tmp_path / "bad", [info]))
    assert part in excinfo.value.details["problem"]


def test_all_unsafe_members_are_listed(tmp_path):
    with raises(ArtifactError, reason="unsafe") as error:
        open_neff(forged(tmp_path / "bad", [tar_info("/a"), tar_info("l", tarfile.SYMTYPE, "x")]))
    assert "'/a' is" in error.value.details["problem"] and "'l' is" in error.value.details["problem"]


def test_members_behind_damaged_tar_header_are_not_lost_silently(tmp_path):
    path = forged(tmp_path / "bad", [tar_info("a", size=700), tar_info("b", size=700)])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"b\0", 2048)] = ord("c")  # the checksum of that member's header is wrong now
    write_with_header(path, raw[1024:])
    with raises(ArtifactError, reason="unsafe"):
        open_neff(path)


def test_chain_of_name_headers_is_refused_without_crash(tmp_path):
    link = tar_info("././@LongLink", tarfile.GNUTYPE_LONGNAME, size=2).tobuf(tarfile.GNU_FORMAT) + b"a".ljust(
        512, b"\0"
    )
    write_with_header(tmp_path / "bad", link * 3000 + bytes(1024))
    with raises(ArtifactError, reason="unsafe"):
        open_neff(tmp_path / "bad")


def test_data_behind_end_of_tar_is_refused(tmp_path):
    with raises(ArtifactError, reason="unsafe"):
        open_neff(forged(tmp_path / "bad", [], tail=b"x" * 512))


@pytest.mark.parametrize("size_field", [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"77777777777\0"])
def test_absurd_member_sizes_are_refused(tmp_path, size_field):
    path = forged(tmp_path / "bad", [tar_info("zz", size=10)])
    raw = bytearray(path.read_bytes())
    start = raw.index(b"zz\0", 1024)
    raw[start + 124 : start + 136] = size_field
    raw[start + 148 : start + 156] = b" " * 8
    raw[start + 148 : start + 156] = b"%06o\0 " % sum(raw[start : start + 512])
    write_with_header(path, raw[1024:])
    with raises(ArtifactError, reason="unsafe"):
        open_neff(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"format_version": 1}'])
def test_unusable_document_is_refused(tmp_path, content, monkeypatch):
    monkeypatch.setattr(NeffDocument, "to_json", lambda self: content)
    with raises(ArtifactError, reason="document"):
        open_neff(forged(tmp_path / "bad", []))


def test_unpack_of_unsafe_file_writes_nothing(tmp_path):
    bad = forged(tmp_path / "bad", [tar_info("../../evil", size=3)])
    with raises(ArtifactError, path=str(bad), reason="unsafe"):
        unpack(bad, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["bad"]


def test_targets_of_one_generation_share_artifacts(path):
    with open_neff(path) as neff:
        check_target(neff, "trn1", 2)
        with pytest.raises(TargetMismatchError) as excinfo:
            check_target(neff, "trn2", 3)
    facts = {"compiled_for": "inf2", "compiled_core_version": 2, "target": "trn2", "core_version": 3}
    assert excinfo.value.details == facts and "trn2" in excinfo.value.hint


def test_unpack_writes_new_folder_and_overwrites_nothing(path, tmp_path):
    files = unpack(path, tmp_path / "new" / "out")
    assert [str(file.relative_to(tmp_path / "new" / "out")) for file in files] == ["ir.json", "neff.json", "tensors/w"]
    assert files[0].read_bytes() == b'{"nodes": []}'
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["out"]
    with raises(ArtifactError, path=str(tmp_path)):
        unpack(path, tmp_path)


def test_header_fields_are_at_published_offsets(tmp_path):
    write_neff(tmp_path / "m.neff", {"a": b"1"}, num_cores=2, lnc_size=1, **FACTS)
    raw = (tmp_path / "m.neff").read_bytes()
    data = raw[1024:]
    # Offsets of the C struct in the Neuron SDK documentation, "Work with NEFF Files".
    assert struct.unpack_from("<5Q", raw, 0) == (1, 1024, len(data), 1, 0)
    assert raw[40:168] == b"2.21.5".ljust(128, b"\0")
    assert struct.unpack_from("<I", raw, 168) == (2,)
    assert raw[172:204] == hashlib.sha256(data).digest() and uuid.UUID(bytes=raw[204:220]).version == 5
    assert raw[220:476] == b"bert".ljust(256, b"\0")
    assert struct.unpack_from("<I", raw, 476) == (2,)
    assert raw[480:544] == bytes(64)
    assert struct.unpack_from("<QI", raw, 544) == (0, 1)
    assert raw[556:1024] == bytes(468)


def test_data_part_is_plain_tar_with_sorted_anonymous_members(tmp_path):
    write_neff(tmp_path / "m.neff", {"sg00/def.json": b"{}", "a": b"x" * 600}, **FACTS)
    data = io.BytesIO((tmp_path / "m.neff").read_bytes()[1024:])
    with tarfile.open(fileobj=data, mode="r:") as archive:
        infos = archive.getmembers()
        assert archive.extractfile("a").read() == b"x" * 600
    assert [info.name for info in infos] == ["a", "neff.json", "sg00/def.json"]
    assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info in infos} == {(0, 0, 0, "", 0o644)}


def test_equal_content_gives_equal_bytes(tmp_path):
    source = tmp_path / "weights.bin"
    source.write_bytes(b"w" * 3_000_000)
    first, second = tmp_path / "1.neff", tmp_path / "2.neff"
    header = write_neff(first, {"a": b"1", "weights": source}, **FACTS)
    repeat = write_neff(second, {"weights": memoryview(source.read_bytes()), "a": memoryview(b"1")}, **FACTS)
    assert first.read_bytes() == second.read_bytes() and header == repeat
    changed = write_neff(second, {"weights": source, "a": b"2"}, **FACTS)
    assert changed.uuid != header.uuid


def test_name_of_any_length_survives(tmp_path):
    name = "/".join(["block" * 20] * 3) + "/weights.bin"
    write_neff(tmp_path / "m.neff", {name: b"x", "empty": b""}, **FACTS)
    with open_neff(tmp_path / "m.neff") as neff:
        assert bytes(neff.read(name)) == b"x" and bytes(neff.read("empty")) == b""


def test_all_bad_members_are_listed_and_nothing_is_written(tmp_path):
    names = ("/etc/passwd", "../up", "C:\\x", "a//b", "d", "d/e", "neff.json")
    members = dict.fromkeys(names, b"") | {"missing": tmp_path / "no"}
    with pytest.raises(ArtifactError) as excinfo:
        write_neff(tmp_path / "m.neff", members, **FACTS)
    parts = ["climbs", "is absolute", "backslash", "has an empty", "is a file and", "is reserved", "which is no file"]
    assert all(part in problem for part, problem in zip(parts, excinfo.value.details["problems"], strict=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"name": "n" * 256},
        {"compiler_version": "v" * 128},
        {"name": "a\0b"},
        {"core_version": 0},
        {"num_cores": True},
        {"target": None},
    ],
    ids=lambda change: f"{change}"[:40],
)
def test_oversized_description_is_refused(tmp_path, change):
    with raises(ConfigError, fields=list(change)):
        write_neff(tmp_path / "m.neff", {}, **{**FACTS, **change})
    assert list(tmp_path.iterdir()) == []


def test_metadata_without_json_form_is_refused(tmp_path):
    with raises(ConfigError, problems=["metadata.x is a object"]):
        write_neff(tmp_path / "m.neff", {}, **{**FACTS, "metadata": {"x": object()}})
    assert list(tmp_path.iterdir()) == []


def test_failed_write_keeps_older_neff(tmp_path):
    path = tmp_path / "m.neff"
    write_neff(path, {"a": b"old"}, **FACTS)
    before = path.read_bytes()
    with pytest.raises(ArtifactError):
        write_neff(path, {"a": tmp_path / "gone"}, **FACTS)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["m.neff"]


def test_header_round_trip():
    header = NeffHeader(data_size=7, build_version="1", num_tpb=3, hash=bytes(range(32)), name="n\u00fc", lnc_size=2)
    assert NeffHeader.unpack(header.pack()) == header
