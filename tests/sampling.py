"""A day's sample of exhaustive tests: `make test` runs a part of them, chosen by the date, and `make test-full` all.

    @pytest.mark.full(days=7)
    @pytest.mark.parametrize("name", PIPELINES)
    def test_pictures_equal_those_of_diffusers(name): ...

Each of seven days in a row runs a seventh of the names, and all seven together run everything. Tests of a file with
the same parameters, or with the same one that `by` names, run on the same day, since they share what fixtures make;
all of a file with `pytestmark = pytest.mark.full(days=2, by="file")` do.
Tests of files that the command line names run, whatever the day.
"""

from __future__ import annotations

import argparse
import datetime
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

MOST_DAYS = 14
"""Everything runs within so many days."""


def add_options(parser: pytest.Parser) -> None:
    """Add the options that choose the sample."""
    group = parser.getgroup("sample of exhaustive tests")
    group.addoption("--full", action="store_true", help="run every test, not the sample of a day")
    group.addoption("--day", type=a_day, help="day whose sample runs, as 2026-11-28 (default: today)")


def a_day(text: str) -> str:
    """Return a date as it is written; argparse reports others."""
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no date like 2026-11-28") from error


def settle(config: pytest.Config) -> None:
    """Choose the day and the files that run in full."""
    option, folder = config.option, config.invocation_params.dir
    option.day = option.day or datetime.date.today().isoformat()
    option.in_full = sorted(
        str((folder / name).resolve()) for arg in config.args if (name := arg.partition("::")[0]).endswith(".py")
    )


def header(config: pytest.Config) -> str:
    """Return the line that says how to run the same tests again."""
    if config.option.full:
        return "every test, no sample"
    return f"sample of exhaustive tests: --day {config.option.day} (all: make test-full, or name the file)"


def left_out(items: Iterable[pytest.Item], config: pytest.Config) -> set[pytest.Item]:
    """Return the tests that run on other days."""
    if config.option.full:
        return set()
    groups: dict[Path, dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if item.get_closest_marker("full") and str(item.path) not in config.option.in_full:
            groups[item.path][case(item)].append(item)
    number = datetime.date.fromisoformat(config.option.day).toordinal()
    result: set[pytest.Item] = set()
    for path, cases in groups.items():
        # Files begin at different cases, so that days take about as long (tests/README.md).
        start = number + zlib.crc32(path.name.encode())
        for index, name in enumerate(sorted(cases)):
            result.update(item for item in cases[name] if (index + start) % days_of(item))
    return result


def part(request: pytest.FixtureRequest, days: int) -> tuple[int, int]:
    """Return which part of how many parts of something runs today, for tests that do not choose by cases."""
    option = request.config.option
    if option.full or str(request.path) in option.in_full:
        return 0, 1
    return datetime.date.fromisoformat(option.day).toordinal() % days, days


def case(item: pytest.Item) -> str:
    """Return what tests of one file that run on the same day have in common: their parameters, or a test alone."""
    by = marker_of(item).kwargs.get("by")
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if by == "file":
        return ""
    if by in parameters:
        return str(parameters[by])
    return item.name.partition("[")[2] or item.name


def days_of(item: pytest.Item) -> int:
    """Return the number of days within which all cases of a test run."""
    days: int = marker_of(item).kwargs["days"]
    return days


def marker_of(item: pytest.Item) -> pytest.Mark:
    """Return the marker of an exhaustive test, which says within how many days all of its cases run."""
    marker = item.get_closest_marker("full")
    assert marker is not None and not marker.args and 1 < marker.kwargs["days"] <= MOST_DAYS, marker
    assert marker.kwargs.keys() <= {"days", "by"}, marker
    return marker
