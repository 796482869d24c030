"""Callbacks run once, after the module, and imports stay as they were."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest

from optimum_neuron.base.after_import import after_import
from tests.finders import ask_all_finders_first


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that can be imported; it registers a callback for itself while it runs."""
    name = "imported_by_a_test"
    tmp_path.joinpath(f"{name}.py").write_text(
        "from optimum_neuron.base.after_import import after_import\n"
        "calls = []\n"
        "after_import(__name__, lambda module: module.calls.append(module.value))\n"
        "value = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_callbacks_run_after_the_module_in_order(module):
    seen = []
    after_import(module, lambda found: seen.append(("first", found.value)))
    after_import(module, lambda found: seen.append(("second", found.value)))
    assert seen == []
    importlib.import_module(module)
    assert seen == [("first", 1), ("second", 1)]
    after_import(module, lambda found: seen.append(("now", found.value)))
    assert seen[2:] == [("now", 1)]


def test_a_spec_that_is_looked_up_keeps_the_callback(module):
    seen = []
    after_import(module, seen.append)
    assert importlib.util.find_spec(module) is not None and importlib.util.find_spec(module) is not None
    assert seen == []
    assert seen == [] and importlib.import_module(module) is seen[0] and len(seen) == 1


def test_a_callback_for_a_module_that_is_running_waits(module):
    found = importlib.import_module(module)
    importlib.util.find_spec("no_such_module_of_a_test")
    assert found.calls == [1]


def test_one_finder_waits_for_all(module):
    before = list(sys.meta_path)
    after_import(module, lambda _: None)
    after_import("no_such_module_of_a_test", lambda _: None)
    assert len([finder for finder in sys.meta_path if finder not in before]) <= 1


def test_other_finders_may_ask_all_finders(module, monkeypatch):
    seen = []
    after_import(module, seen.append)
    ask_all_finders_first(monkeypatch)
    assert importlib.import_module(module) is seen[0] and len(seen) == 1
