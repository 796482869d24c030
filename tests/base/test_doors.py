"""Modules whose names are rows of a table."""

from __future__ import annotations

import importlib
import inspect
import sys

import pytest

from optimum_neuron.base.doors import open_doors
from optimum_neuron.errors import ModelError

INIT = """
from optimum_neuron.base.doors import ON_IMPORT, OTHERS, Missing, OfExtra, open_doors

calls = []

def called():
    calls.append("imported")

NAMES = {
    "acme_door": {"join": "os:path.join", "sep": "os:sep", "system": "platform:", "gone": "os:no_such_name"},
    "acme_door.parts": {ON_IMPORT: "acme_door:called", "sqrt": "math:sqrt", "extra": OfExtra("no_such_module:name"),
                        "Fast": Missing("Use sqrt.")},
    "acme_door.parts.deep": {"pi": "math:pi"},
    "acme_door.rest": {"tau": "math:tau", OTHERS: Missing("Use math.")},
    "acme_door.all_of": "string",
    "acme_door.real": {"e": "math:e"},
}
__getattr__, __dir__, __all__ = open_doors(__name__, NAMES)
"""


@pytest.fixture
def acme(tmp_path, monkeypatch):
    """A package with a table, and one module that has a file."""
    folder = tmp_path / "acme_door"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "real.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("acme_door")
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme_door"]:
        del sys.modules[name]


def test_names_are_objects_parts_of_objects_and_modules(acme):
    import os.path
    import platform

    assert acme.join is os.path.join and acme.sep == os.sep and acme.system is platform
    assert dir(acme) == acme.__all__ == ["gone", "join", "sep", "system"]


def test_modules_need_no_files_and_a_file_goes_first(acme):
    import math

    deep = importlib.import_module("acme_door.parts.deep")
    assert deep.pi == math.pi and acme.parts.deep is deep and not hasattr(deep, "__path__")
    assert importlib.import_module("acme_door.real").value == 1
    assert importlib.import_module("acme_door.all_of").digits == "0123456789"


def test_import_runs_its_function_once(acme):
    assert acme.calls == []
    for _ in range(2):
        importlib.import_module("acme_door.parts")
    assert acme.calls == ["imported"]


def test_star_import_leaves_out_what_may_be_missing(acme):
    namespace: dict[str, object] = {}
    exec("from acme_door.parts import *", namespace)
    assert {"sqrt"} == namespace.keys() - {"__builtins__"}
    assert dir(acme.parts) == ["Fast", "extra", "sqrt"]


def test_missing_feature_raises_when_it_is_used(acme):
    for use in (acme.parts.Fast, lambda: acme.parts.Fast.of_file("a")):
        with pytest.raises(ModelError) as excinfo:
            use()
        assert excinfo.value.details == {"name": "Fast", "module": "acme_door.parts"}
        assert "sqrt" in str(excinfo.value)


def test_errors_of_names_are_those_of_modules(acme):
    with pytest.raises(AttributeError, match="module 'acme_door' has no attribute 'joyn', did you mean 'join'"):
        acme.joyn  # noqa: B018
    with pytest.raises(AttributeError, match="acme_door.gone is os:no_such_name"):
        acme.gone  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        acme.parts.extra  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match="acme_door.other"):
        importlib.import_module("acme_door.other")
    assert inspect.getmodule(acme.parts) is acme.parts


def test_tables_are_served_by_one_finder(acme):
    finders = list(sys.meta_path)
    open_doors("acme_door", acme.NAMES)
    assert sys.meta_path == finders


def test_other_names_of_a_module_are_missing(acme):
    from acme_door.rest import anything, tau

    assert tau > 6
    with pytest.raises(ModelError) as excinfo:
        anything(1)
    assert excinfo.value.details == {"name": "anything", "module": "acme_door.rest"}
    assert acme.rest.anything is anything and not hasattr(acme.rest, "__wrapped__")
