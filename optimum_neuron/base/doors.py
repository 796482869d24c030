"""Front doors: modules under names that scripts already import, such as `torch_xla.core.xla_model`.

A door is a table: for each module its names, and for each name the object here. The modules of a table need no files;
they come into being when they are imported, and each name is looked up when it is used.

    NAMES = {
        "acme": {"run": "optimum_neuron.acme:run", "stop": Missing("Runs end by themselves.")},
        "acme.language": "optimum_neuron.acme.language",
    }
    __getattr__, __dir__, __all__ = open_doors("acme", NAMES)

| row | meaning |
| --- | --- |
| `"module:attribute"` | that object, also `"module:one.other"`; `"module:"` is the module itself |
| `OfExtra("module:attribute")` | the same; `import *` leaves it out, because it needs an extra that may be missing |
| `Missing("Use ...")` | no counterpart: using the name raises `ModelError` with the alternative |
| `OTHERS: Missing("Use ...")` | every other name of the module is missing |
| `ON_IMPORT: "module:function"` | called when the module is imported |
| `AS_PROGRAM: "module:function"` | called when the module is run, with `python -m` |
| a string in place of a module's rows | all names of `__all__` of that module |
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

from ..errors import ModelError, nearest

ON_IMPORT = ""
"""The row of a function that is called when the module is imported."""
OTHERS = "*"
"""The row of all names that a module has no other row for."""
AS_PROGRAM = "__main__"
"""The row of a function that is called when the module is run as a program; its result is the exit status."""


class Missing(str):
    """The alternative to a feature that has no counterpart."""


class OfExtra(str):
    """The target of a name that needs an extra."""


Rows = Mapping[str, str]
Names = Mapping[str, Rows | str]
"""Rows of each module, or the module whose names it has."""


class _Absent(type):
    """The class of the classes that stand for missing features."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        cls._fail()

    def __call__(cls, *args: object, **options: object) -> NoReturn:
        cls._fail()

    def _fail(cls) -> NoReturn:
        own = next(base for base in reversed(cls.__mro__) if isinstance(base, _Absent))  # not a subclass of a script
        message = f"`{own.__module__}.{own.__name__}` is not supported. {own.__doc__}"
        raise ModelError(message, name=own.__name__, module=own.__module__)


def absent(module: str, name: str, alternative: str) -> type:
    """Return a class that stands for a missing feature: it can be imported, and its use is an error."""
    return _Absent(name, (), {"__module__": module, "__doc__": str(alternative)})


class _Finder:
    """Makes the modules of tables; a module with a file is left to that file."""

    def __init__(self) -> None:
        self.names: dict[str, Rows | str] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return where the module comes from, for the import system."""
        if name not in self.names or path is None:
            return None
        of_file = PathFinder.find_spec(name, path, target)
        return spec_of(name, path) if of_file is None or of_file.loader is None else of_file

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system."""

    def exec_module(self, module: ModuleType) -> None:
        """Give a module its names."""
        module.__doc__ = f"Names of `{module.__name__}` on `optimum_neuron`."
        vars(module).update(_contents(module.__name__, self.names))

    def get_code(self, name: str) -> CodeType | None:
        """Return the code of a module that is run as a program, for `python -m`."""
        rows = self.names[name]
        if isinstance(rows, str) or AS_PROGRAM not in rows:
            return None
        place, _, function = rows[AS_PROGRAM].partition(":")
        return compile(f"import sys\nfrom {place} import {function}\nsys.exit({function}())", f"<{name}>", "exec")


_FINDER = _Finder()


def serve(names: Names) -> None:
    """Let all modules of a table be imported.

    Args:
        names: the table.
    """
    _FINDER.names.update(names)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


def spec_of(name: str, path: Sequence[str] = ()) -> ModuleSpec:
    """Return the spec of a served module, for use by another finder.

    Args:
        path: the `__path__` of its parent.
    """
    last = name.rpartition(".")[2]
    places = [str(Path(place, last)) for place in path if Path(place, last).is_dir()]
    is_package = bool(places) or any(other.startswith(f"{name}.") for other in _FINDER.names)
    spec = ModuleSpec(name, _FINDER, is_package=is_package)  # type: ignore[arg-type]  # it has all that a loader needs
    if is_package:
        spec.submodule_search_locations = places
    return spec


def open_doors(module: str, names: Names) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Let all modules of a table be imported, and return `__getattr__`, `__dir__`, and `__all__` of one with a file.

    Args:
        module: its `__name__`, one of the table.
    """
    serve(names)
    held = _contents(module, names)
    return held["__getattr__"], held["__dir__"], held["__all__"]


def _contents(module: str, names: Names) -> dict[str, Any]:
    """What a module of a table holds."""
    rows = names[module]
    if isinstance(rows, str):
        source = importlib.import_module(rows)
        return {"__all__": list(source.__all__), **{name: getattr(source, name) for name in source.__all__}}
    if ON_IMPORT in rows:
        _found(rows[ON_IMPORT], module)()
    others = rows.get(OTHERS)
    rows = {name: target for name, target in rows.items() if name not in (ON_IMPORT, OTHERS, AS_PROGRAM)}

    @functools.cache
    def missing(name: str, alternative: str) -> Any:
        return absent(module, name, alternative)

    def __getattr__(name: str) -> Any:
        if name in rows:
            target = rows[name]
            return missing(name, target) if isinstance(target, Missing) else _found(target, f"{module}.{name}")
        if f"{module}.{name}" in names:
            return importlib.import_module(f"{module}.{name}")
        if name.startswith("__"):  # inspect asks every module for some
            raise AttributeError(name)
        if others is not None:
            return missing(name, others)
        raise AttributeError(f"module {module!r} has no attribute {name!r}{nearest(name, rows)}")

    def __dir__() -> list[str]:
        return sorted(rows)

    listed = sorted(name for name, target in rows.items() if not isinstance(target, (Missing, OfExtra)))
    return {"__getattr__": __getattr__, "__dir__": __dir__, "__all__": listed}


def _found(target: str, name: str) -> Any:
    """The object of a row."""
    place, _, path = target.partition(":")
    found = importlib.import_module(place)
    try:
        return functools.reduce(getattr, path.split("."), found) if path else found
    except AttributeError as error:
        raise AttributeError(f"{name} is {target}, which is not there: {error}") from error
