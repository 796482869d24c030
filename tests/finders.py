"""A finder that asks all others, as coverage tools and import hooks of other libraries have.

    ask_all_finders_first(monkeypatch)

It is compiled as code in site-packages, because the package hides some modules from the libraries there.
"""

from __future__ import annotations

import sys

import pytest

FILE = "/lib/python3/site-packages/coverage_tool/importer.py"
CODE = """
class Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        for finder in sys.meta_path:
            if finder is not Finder and (spec := finder.find_spec(name, path, target)) is not None:
                return spec
        return None
"""


def ask_all_finders_first(patch: pytest.MonkeyPatch) -> None:
    """Put the finder in front of the others, for a test."""
    names = {"__name__": "coverage_tool.importer", "sys": sys}
    exec(compile(CODE, FILE, "exec"), names)
    patch.setattr(sys, "meta_path", [names["Finder"], *sys.meta_path])
