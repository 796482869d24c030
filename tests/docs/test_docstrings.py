"""Every example in a docstring runs: ```python blocks, and lines with `>>>`."""

from __future__ import annotations

import ast
import doctest
import importlib

import pytest

from tests.docs import fences
from tests.docs.fences import PYTHON, Fence
from tests.tree import ROOT


def docstrings(path) -> list[tuple[int, str]]:
    """Line and text of each docstring of a module; fields' docstrings too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append((node.lineno, node.value.value))
    return found


FILES = sorted((ROOT / "optimum_neuron").rglob("*.py"))
BLOCKS: list[Fence] = [
    fence
    for path in FILES
    for line, text in docstrings(path)
    for fence in fences.find_fences(text, path, line)
    if fence.language in PYTHON
]
DOCTESTS = [
    (path, line, text)
    for path in FILES
    for line, text in docstrings(path)
    if doctest.DocTestParser().get_examples(text)
]


def test_there_are_examples():
    assert len(BLOCKS) > 20 and len(DOCTESTS) > 5


@pytest.mark.parametrize("fence", BLOCKS, ids=str)
def test_blocks_run(fence):
    assert fence.tags <= {"no-run"}
    if "no-run" in fence.tags:
        fences.compiled(fence)
    else:
        fences.run_here([fence])


@pytest.mark.parametrize(
    ("path", "line", "text"), DOCTESTS, ids=[f"{path.relative_to(ROOT)}:{line}" for path, line, _ in DOCTESTS]
)
def test_doctests_run(path, line, text):
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    names = vars(importlib.import_module(module)).copy()
    test = doctest.DocTestParser().get_doctest(text, names, f"{path.relative_to(ROOT)}:{line}", str(path), line)
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not said, "".join(said)
