"""Names of a package that are imported when they are first used, so that importing the package stays light.

__getattr__ = lazy_names(__name__, {"main_export": "export"})
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562).

    Args:
        package: its `__name__`.
        modules: public name to the module of the package that defines it.
    """

    def __getattr__(name: str) -> Any:
        if name not in modules:
            from .errors import nearest

            raise AttributeError(f"module {package!r} has no attribute {name!r}{nearest(name, modules)}")
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return __getattr__
