"""Names of a package that its stub takes from its own modules and from other packages."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a package whose stub names a function of the same name as its module, a module, and a name from above."""
    root = tmp_path / "lazy_example"
    inner = root / "inner"
    inner.mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "other.py").write_text("VALUE = 3\n")
    (inner / "prepare.py").write_text("def prepare():\n    return 2\n")
    (inner / "plain.py").write_text("ONE = 1\n")
    stub = "from ..other import VALUE as VALUE\nfrom . import plain as plain\nfrom .prepare import prepare as prepare\n"
    (inner / "__init__.pyi").write_text(stub)
    attach = "from optimum_neuron.base.lazy_names import attach_stub\n"
    attach += "__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)\n"
    (inner / "__init__.py").write_text(attach)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("lazy_example.inner")
    for name in [name for name in sys.modules if name.split(".")[0] == "lazy_example"]:
        del sys.modules[name]


def test_names_are_imported_at_first_use(package):
    assert package.__all__ == ["VALUE", "plain", "prepare"] == dir(package)
    assert "lazy_example.other" not in sys.modules
    assert package.VALUE == 3 and package.plain.ONE == 1


def test_function_is_found_behind_its_module(package):
    importlib.import_module("lazy_example.inner.prepare")
    assert [package.prepare() for _ in range(2)] == [2, 2]


def test_unknown_name_is_attribute_error(package):
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018
