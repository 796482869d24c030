"""Lazy names of a package that are in its stub, also those of other packages.

`lazy_loader.attach_stub` supports only stubs that import from the package's own modules.

    __getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lazy_loader


def attach_stub(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__`, and `__all__` of a package for the names that its stub imports."""
    own: dict[str, list[str]] = {}
    others: dict[str, str] = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            own.setdefault(node.module or "", []).extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            others |= {alias.name: "." * node.level + (node.module or "") for alias in node.names}
    submodules = own.pop("", [])
    load_own, _, own_names = lazy_loader.attach(package, submodules, own)
    names = sorted({*own_names, *others})

    def load(name: str) -> Any:
        if name in others:
            return getattr(importlib.import_module(others[name], package), name)
        return load_own(name)

    return load, lambda: list(names), names
