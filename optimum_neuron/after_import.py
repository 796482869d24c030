"""Run a callback after a third-party module has been imported, or now if it was: nothing is imported for it.

    after_import("safetensors", wrap)

A module that is being imported has not run yet. The action then waits for the first import after it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def after_import(name: str, action: Callable[[ModuleType], None]) -> None:
    """Call `action` with the module of that full name once it has run, or now if it was imported."""
    module = _imported(name)
    if module is not None:
        action(module)
    else:
        sys.meta_path.insert(0, _Finder(name, action))


def _imported(name: str) -> ModuleType | None:
    """A module that has run to its end."""
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module once, as the other finders do, and acts when it has run."""

    def __init__(self, name: str, action: Callable[[ModuleType], None]) -> None:
        self._name, self._action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        module = _imported(self._name)
        if module is not None:
            self._leave()
            self._action(module)
        if fullname != self._name:
            return None
        self._leave()
        spec = importlib.util.find_spec(self._name)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._executing(spec.loader.exec_module)  # type: ignore
        return spec

    def _leave(self) -> None:
        # Another list: importlib goes through this one.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not self]

    def _executing(self, execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._action(module)

        return exec_module
