"""Wheels of all distributions, built from the files that the Dockerfile copies, and an environment with them.

Nothing is downloaded: setuptools of this environment builds, and everything else that the wheels need is found through
one more line on the path. That line comes after the wheels, and a `.pth` of a `.pth` is not read, so an editable
installation of this environment stays out.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.tree import ROOT, files

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def copied() -> set[str]:
    """Files and folders of the tree that the Dockerfile copies."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return {name for line in lines if line.startswith("COPY ") for name in line.split()[1:-1]}


def finished(words: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a command that must exit with 0, and return its stdout."""
    environ = {**os.environ, "PYTHONPATH": "", **environment}
    result = subprocess.run([*map(str, words)], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, (
        f"{words[:6]} ended with {result.returncode}\n{result.stdout[-2000:]}{result.stderr[-4000:]}"
    )
    return result.stdout


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installed:
    """A virtual environment with all wheels."""

    python: Path
    """Its interpreter."""
    bin: Path
    """Folder of its commands."""
    home: Path
    """Folder of the test: working directory of programs, and their caches."""

    def run(self, *words: str | Path) -> str:
        """Run a command in an empty folder and return its output."""
        return finished(words, self.home, OPTIMUM_NEURON_HOME=str(self.home / "caches"), HF_HUB_OFFLINE="1")


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """Wheel of each distribution, by its name."""
    pytest.importorskip("setuptools", minversion="77")
    source = tmp_path_factory.mktemp("source")
    taken = copied()
    for name in files():
        if name.split("/")[0] in taken:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    built = source / "wheels"
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    finished([*PIP, "wheel", *offline, "-w", built, ".", "./sdk", "./sdk_vllm", "./sdk_xla"], source)
    return {path.name.split("-")[0]: path for path in built.glob("*.whl")}


@pytest.fixture(scope="session")
def venv_folder(wheels, tmp_path_factory):
    """All wheels in a separate environment, by name and out of a folder, as from an index."""
    folder = tmp_path_factory.mktemp("installed")
    finished([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    where = ["--no-index", "--find-links", wheels["optimum_neuron_sim"].parent]
    names = ["optimum-neuron-sim", "optimum-neuron-sim-sdk", "optimum-neuron-sim-vllm", "optimum-neuron-sim-xla"]
    finished([*PIP, "--python", python, "install", "--no-deps", *where, *names], folder)
    site = finished([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip()
    (Path(site) / "packages_of_the_developer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Installed(python=python, bin=python.parent, home=folder)
