"""The README: its commands and its example run as printed, in its order, in one folder."""

from __future__ import annotations

import re

import pytest

from tests.docs import fences
from tests.docs.fences import SHELL
from tests.tree import ROOT

README = ROOT / "README.md"
MAX_LINES, MAX_PICTURE_BYTES = 110, 80_000


def test_readme_is_short_and_starts_with_two_commands():
    text = README.read_text(encoding="utf-8")
    first = next(fence for fence in fences.page_fences(README) if fence.language in SHELL)
    assert [line.split("#")[0].strip() for line in first.text.splitlines()] == ["make demo", "make test"]
    assert text.count("\n") <= MAX_LINES


def test_make_targets_exist():
    named = set(re.findall(r"make ([a-z]+)", README.read_text(encoding="utf-8")))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert {target for target in named if not re.search(rf"^{target}:", makefile, flags=re.MULTILINE)} == set()


def test_files_exist():
    named = re.findall(
        r"`((?:optimum_neuron|tests|docs|models|tools|sdk)/[\w/.-]+)`", README.read_text(encoding="utf-8")
    )
    assert len(named) >= 6
    assert [file for file in named if not (ROOT / file).exists()] == []


def test_picture_is_small():
    named = re.findall(r"!\[[^]]+\]\(([^)]+)\)", README.read_text(encoding="utf-8"))
    assert len(named) == 1 and (ROOT / named[0]).stat().st_size <= MAX_PICTURE_BYTES


def test_architecture_lists_every_package_in_one_sentence():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_]+)/` \| (.+) \|$", text, flags=re.MULTILINE))
    assert set(rows) == {path.parent.name for path in (ROOT / "optimum_neuron").glob("*/__init__.py")}
    assert [row for row in rows.values() if len(row) > 160 or "; " in row] == []


@pytest.mark.full(days=2)
@pytest.mark.checkpoint
def test_examples_run_and_print_the_shown_output(tmp_path, real_environment):
    result, stdout = [], ""
    for fence, output in fences.with_outputs(fences.page_fences(README)):
        if "checkpoint" in fence.tags:
            stdout = fences.run_apart(fence, output, tmp_path, real_environment)
            result.append(fence.language)
        elif result and fence.language == "text":
            # Output may be abbreviated and from another machine: lines are compared up to their numbers.
            text = {shape(line) for line in fence.text.splitlines() if line not in ("", "...")}
            assert text - {shape(line) for line in stdout.splitlines()} == set(), f"{fence}: nothing prints this"
    assert result == ["python", "bash"]


def shape(line: str) -> str:
    """A line without its numbers and hashes, the unit of an age, and the width of its columns."""
    line = re.sub(r"MODULE_[0-9a-f]+", "MODULE", line)
    line = re.sub(r"(s|minutes?|hours?) ago", "ago", line)
    return " ".join(re.sub(r"[0-9]+(\.[0-9]+)?", "N", line).split())
