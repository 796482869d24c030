"""The README: its commands and its example run as printed, in its order, in one folder."""

from __future__ import annotations

import re

import pytest

from tests.docs import fences
from tests.docs.fences import PYTHON, ROOT, SHELL

README = ROOT / "README.md"


def test_it_is_short_and_begins_with_the_two_commands():
    text = README.read_text(encoding="utf-8")
    first = next(fence for fence in fences.page_fences(README) if fence.language in SHELL)
    assert [line.split("#")[0].strip() for line in first.text.splitlines()] == ["make demo", "make test"]
    assert text.count("\n") <= 180


def test_the_make_targets_it_names_exist():
    named = set(re.findall(r"make ([a-z]+)", README.read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {target for target in named if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)} == set()


def test_the_files_it_names_exist():
    named = re.findall(r"`((?:optimum_neuron|tests|docs|models|tools|sdk)/[\w/.-]+)`", README.read_text(encoding="utf-8"))
    assert len(named) >= 6
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_the_tree_lists_every_package():
    text = README.read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "optimum_neuron").glob("*/__init__.py")}
    assert {package for package in packages if f"  {package}/" not in text} == set()


@pytest.mark.checkpoint
def test_the_examples_run_as_printed(tmp_path, apart):
    ran = []
    blocks = [f for f in fences.page_fences(README) if f.language in (*PYTHON, *SHELL) or "output" in f.tags]
    for fence, output in fences.with_outputs(blocks):
        if "checkpoint" in fence.tags:
            fences.run_apart(fence, output, tmp_path, apart)
            ran.append(fence.language)
    assert ran == ["python", "bash"]
