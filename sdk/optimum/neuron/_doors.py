"""Modules of Optimum Neuron as doors to `optimum_neuron`: names are looked up when they are first used.

    __getattr__, __dir__, __all__ = door(__name__)

A name of a missing feature can be imported; using it raises `ModelError` with the alternative.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NoReturn

import optimum_neuron
from optimum_neuron.errors import ModelError, nearest

from ._names import ABSENT, NAMES


class _Absent(type):
    """The class of the classes that stand for missing features."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        cls._fail()

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        cls._fail()

    def _fail(cls) -> NoReturn:
        message = f"`{cls.__module__}.{cls.__name__}` is not supported. {ABSENT[cls.__name__]}"
        raise ModelError(message, name=cls.__name__, module=cls.__module__)


def door(module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__`, and `__all__` of a module.

    Args:
        module: its `__name__`, one of `NAMES`.
    """
    targets = NAMES[module]
    absent = {
        name: _Absent(name, (), {"__module__": module, "__doc__": ABSENT[name]})
        for name, target in targets.items()
        if not target
    }

    def __getattr__(name: str) -> Any:
        if name in absent:
            return absent[name]
        if name not in targets:
            raise AttributeError(f"module {module!r} has no attribute {name!r}{nearest(name, targets)}")
        place, _, attribute = targets[name].partition(":")
        return getattr(importlib.import_module(place), attribute)

    def __dir__() -> list[str]:
        return sorted(targets)

    # `import *` leaves out missing features, and names that need an extra.
    of_extras = {*optimum_neuron.TRAINING_NAMES, *optimum_neuron.DIFFUSION_NAMES}
    return __getattr__, __dir__, sorted(set(targets) - set(absent) - of_extras)
