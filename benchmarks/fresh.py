"""Run commands in new processes with empty caches; only checkpoints are shared."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from optimum_neuron.base import env

from .harness import seconds


def run(command: list[str]) -> str:
    """Run a command and return its stdout."""
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "checkpoints").symlink_to((env.home() / "checkpoints").absolute())
        variables = {"OPTIMUM_NEURON_HOME": home, "TORCHINDUCTOR_CACHE_DIR": str(Path(home) / "inductor"),
                     "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # fmt: skip
        done = subprocess.run(command, env={**os.environ, **variables}, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout


def cli(*words: str) -> list[str]:
    """Return an optimum-cli command."""
    return [sys.executable, "-m", "optimum.commands.optimum_cli", *words]


def export_s(model: str | Path, *options: str) -> float:
    """Return the time of an export, in seconds."""
    with tempfile.TemporaryDirectory() as work:
        return seconds(lambda: run(cli("export", "neuron", "-m", str(model), *options, "--quiet", f"{work}/out")))
