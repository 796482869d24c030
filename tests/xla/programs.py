"""Programs that import `torch_xla`, each in its own process: here it would change transformers and accelerate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tree import ROOT
from tests.warm import SEPARATE_INSTANCE

# What the installed distribution does when Python starts.
START = f"import sys; sys.path.insert(0, {str(ROOT / 'sdk_xla')!r}); import optimum_neuron_sim_xla\n"


def run(program: str, folder: Path, **variables: str) -> str:
    """Run a program that must succeed in a folder, and return its stdout."""
    path = folder / "program.py"
    path.write_text(START + program)
    environ = {**os.environ, "OPTIMUM_NEURON_INSTANCE": SEPARATE_INSTANCE, **variables}
    command = [sys.executable, path]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environ)
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout
