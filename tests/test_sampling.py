"""Exhaustive tests: every case runs within its days, the same on every worker, and always where it is named."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import sampling

START = datetime.date(2026, 11, 28)
FILES = ("tests/test_a.py", "tests/test_b.py")


class Item:
    """What of a test decides whether it runs; `days` is None for a test that is not exhaustive."""

    def __init__(self, file, name, days, by=None, **params):
        self.path, self.name, self.file = Path("/repo", file), name, file
        keywords = {"days": days} | ({"by": by} if by else {})
        self.marker = pytest.mark.full(**keywords).mark if days else None
        if params:
            self.callspec = SimpleNamespace(params=params)

    def get_closest_marker(self, name):
        assert name == "full"
        return self.marker


def items():
    found = [Item(file, f"test_x[case{number}]", 7) for file in FILES for number in range(30)]
    found += [Item(file, f"test_y[case{number}]", 7) for file in FILES for number in range(30)]
    found += [
        Item(FILES[0], f"test_of_{model}[{rows}-{model}]", 3, "model", model=model)
        for model in "abcd"
        for rows in (1, 2)
    ]
    return [*found, Item(FILES[0], "test_alone", 14), Item(FILES[0], "test_always", None)]


def config(day=START, full=False, in_full=()):
    return SimpleNamespace(option=SimpleNamespace(day=day.isoformat(), full=full, in_full=list(in_full)))


def chosen(tests, **options):
    others = sampling.left_out(tests, config(**options))
    return [test for test in tests if test not in others]


def test_every_case_runs_within_its_days_and_once():
    tests = items()
    days = [chosen(tests, day=START + datetime.timedelta(number)) for number in range(sampling.MOST_DAYS)]
    for test in tests:
        expected = sampling.MOST_DAYS if test.marker is None else sampling.MOST_DAYS // test.marker.kwargs["days"]
        assert abs(sum(test in day for day in days) - expected) <= (sampling.MOST_DAYS % 3 > 0), test.name
    assert max(map(len, days)) - min(map(len, days)) <= 12


def test_same_parameters_run_on_the_same_day():
    for number in range(7):
        found = {(test.file, test.name) for test in chosen(items(), day=START + datetime.timedelta(number))}
        for file in FILES:
            of = {name.partition("[")[2] for other, name in found if other == file and name.startswith("test_x[")}
            assert of and of == {
                name.partition("[")[2] for o, name in found if o == file and name.startswith("test_y[")
            }
        together = [name.partition("[")[0] for _, name in found if name.startswith("test_of_")]
        assert {together.count(name) for name in together} <= {2}


def test_all_of_a_file_runs_on_the_same_days():
    tests = [Item(FILES[0], name, 2, "file") for name in ("test_x", "test_y[case1]", "test_y[case2]")]
    days = [chosen(tests, day=START + datetime.timedelta(number)) for number in range(2)]
    assert sorted(map(len, days)) == [0, 3]


def test_order_of_collection_does_not_matter():
    tests = items()
    assert set(chosen(tests)) == set(chosen(tests[::-1]))


def test_everything_runs_in_full_and_where_a_file_is_named():
    tests = items()
    assert chosen(tests, full=True) == tests
    named = [test for test in chosen(tests, in_full=["/repo/tests/test_a.py"]) if test.file == FILES[0]]
    assert named == [test for test in tests if test.file == FILES[0]]
    assert len(chosen(tests, in_full=["/repo/tests/test_a.py"])) < len(tests)


@pytest.mark.parametrize("keywords", [{"days": 15}, {"days": 1}, {"days": 3, "of": "x"}])
def test_a_marker_that_cannot_be_kept_is_an_error(keywords):
    test = Item(FILES[0], "test_x", 2)
    test.marker = pytest.mark.full(**keywords).mark
    with pytest.raises(AssertionError):
        chosen([test])


def test_this_run_has_a_day(pytestconfig):
    assert sampling.a_day(pytestconfig.option.day) == pytestconfig.option.day
    assert pytestconfig.option.full or pytestconfig.option.day in sampling.header(pytestconfig)
    with pytest.raises(Exception, match="no date"):
        sampling.a_day("28.11.2026")
