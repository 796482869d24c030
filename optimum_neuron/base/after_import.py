"""Run a callback after a third-party module has been imported, or now if it was: nothing is imported for it.

    after_import("safetensors", wrap)

One finder knows all modules that are waited for. A module that is being imported at the call has not run yet: its
callback waits for the first import after it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType

Action = Callable[[ModuleType], None]

_actions: dict[str, list[Action]] = {}
"""Callbacks by the full name of a module that has not run."""
_running: set[str] = set()
"""Modules among them that were being imported when their callback was added: no finder will be asked for them."""


class _Searching(threading.local):
    """Modules that this thread looks up: other finders, such as those of coverage tools, may ask all finders again."""

    def __init__(self) -> None:
        self.names: set[str] = set()


_searching = _Searching()


def after_import(name: str, action: Action) -> None:
    """Call `action` with the module of that full name once it has run, or now if it was imported."""
    module = sys.modules.get(name)
    if module is not None and not _is_initializing(module):
        action(module)
        return
    if not _actions:
        sys.meta_path.insert(0, _FINDER)
    _actions.setdefault(name, []).append(action)
    if module is not None:
        _running.add(name)


def _is_initializing(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))


def _run_actions(module: ModuleType, name: str) -> None:
    _running.discard(name)
    actions = _actions.pop(name, [])
    if not _actions:
        # Another list: importlib goes through this one.
        sys.meta_path = [finder for finder in sys.meta_path if finder is not _FINDER]
    for action in actions:
        action(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules as the other finders do, and runs the callbacks when they have run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for name in tuple(_running):
            module = sys.modules.get(name)
            if module is not None and not _is_initializing(module):
                _run_actions(module, name)
        if fullname not in _actions or fullname in _searching.names:
            return None
        _searching.names.add(fullname)
        try:
            others = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((spec for spec in others if spec is not None), None)
        finally:
            _searching.names.discard(fullname)
        if spec is not None and spec.loader is not None:
            # A spec may be looked up and never executed, so the callbacks stay until it is.
            spec.loader.exec_module = _executing(spec.loader.exec_module, fullname)  # type: ignore
        return spec


def _executing(execute: Action, name: str) -> Action:
    def exec_module(module: ModuleType) -> None:
        execute(module)
        _run_actions(module, name)

    return exec_module


_FINDER = _Finder()
