"""The package as a whole: light, sorted, documented."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import optimum_neuron.hardware as hardware

MODULES = [hardware.__name__, *(f"{hardware.__name__}.{m.name}" for m in pkgutil.iter_modules(hardware.__path__))]


def test_all_is_sorted_and_real() -> None:
    assert hardware.__all__ == sorted(hardware.__all__, key=lambda name: (not name.isupper(), name.islower(), name))
    assert all(hasattr(hardware, name) for name in hardware.__all__)


def test_import_is_light() -> None:
    code = (
        "import sys, optimum_neuron.hardware as h; h.resolve_target('trn1'); "
        "print([m for m in ('torch', 'transformers', 'optimum', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(module)
    assert result.failed == 0
    assert result.attempted > 0, "the module docstring has no example"
