"""The changelog: what a user gets, one line an entry, by area."""

from __future__ import annotations

import re

import pytest

from tests.tree import ROOT

MAX_COLUMNS = 120
LINE = re.compile(r"- \S.*\.|#{1,3} \S.*|")
FIX_OF_UNRELEASED = re.compile(r"^- Fixed\b|[;.] before,|\bused to\b|\bno longer\b", re.IGNORECASE)


def problems(text: str) -> list[str]:
    """Return the lines below the first version that are no one-line entry, or that tell of a fault nobody had."""
    body = text[text.index("\n## [") + 1 :]
    first, *released = re.split(r"^(?=## \[)", body, flags=re.MULTILINE)[1:]
    lines = [line for section in (first, *released) for line in section.splitlines()]
    result = [line for line in lines if not LINE.fullmatch(line) or len(line) > MAX_COLUMNS]
    # A version that was never released has no faults that a user knows.
    return result if released else result + [line for line in lines if FIX_OF_UNRELEASED.search(line)]


def test_entries_are_one_line_each():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert problems(text) == []
    assert 40 <= text.count("\n- ") <= 70


@pytest.mark.parametrize(
    "entry",
    [
        "- One entry\n  on two lines.",
        f"- {'long ' * 30}entry.",
        "- An entry without its period",
        "Prose between entries.",
        "- Fixed: the server ended without an error.",
        "- A NaN stays with one request; before, padding carried it over.",
    ],
)
def test_other_entries_are_problems(entry):
    head = "# Changelog\n\n## [0.1.0] - Unreleased\n\n### Area\n"
    assert problems(f"{head}- An entry with a [link](docs/index.md).\n") == []
    assert problems(f"{head}{entry}\n") != []


def test_fixes_of_a_released_version_are_entries():
    text = "# Changelog\n\n## [0.2.0]\n\n- Fixed: loads of old folders.\n\n## [0.1.0]\n\n- Everything.\n"
    assert problems(text) == []
