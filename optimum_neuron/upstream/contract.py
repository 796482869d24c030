"""Rows that describe how this package depends on private parts of other libraries, and their contracts.

A row names one private class, function, method, or constant, says why it is needed, and what has to stay true of it.
`problem()` checks the installed release. `tests/upstream` checks all rows first, so that an upgrade of a library fails
there with the name of the row. This module knows no library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from types import CodeType
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Touch:
    """One private name of a library."""

    target: str
    """Full name, such as `torch._subclasses.fake_tensor.FakeTensorMode`."""
    why: str
    """What this package needs it for."""
    parameters: tuple[str, ...] = ()
    """Parameters that this package passes, or that its replacement takes; empty for no check."""

    KIND = "import"

    def resolve(self) -> Any:
        """Return the object, importing its module."""
        try:
            return pkgutil.resolve_name(self.target)
        except (ImportError, AttributeError) as error:
            raise ImportError(f"{self.library()} has no {self.target}, which optimum_neuron uses.") from error

    def library(self) -> str:
        """Return the library and its installed version, such as "torch 2.13.0"."""
        name = self.target.partition(".")[0]
        return f"{name} {version(name)}"

    def problem(self) -> str | None:
        """Return what the installed release does differently, or None."""
        try:
            value = self.resolve()
        except ImportError as error:
            return str(error)
        missing = [name for name in self.parameters if name not in _parameters(value)]
        if missing:
            return f"{self.library()}: {self.target} lost the parameter {', '.join(missing)}."
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Name(Touch):
    """A private name that is imported or called."""

    alias: str = ""
    """Name in this package's module, where another row has the last part of `target` already."""

    def name(self) -> str:
        """Return its name in this package's module: the library's, without a leading underscore."""
        return self.alias or self.target.rpartition(".")[2].lstrip("_")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Override(Touch):
    """A private method that a class of this package overrides."""

    callers: tuple[str, ...] = ()
    """Functions of the library that have to call it: without the call, the override would do nothing."""

    KIND = "override"

    def problem(self) -> str | None:
        """Return what the installed release does differently, or None."""
        method = self.target.rpartition(".")[2]
        if found := super().problem():
            return found
        for caller in self.callers:
            if method not in _names(pkgutil.resolve_name(caller)):
                return f"{self.library()}: {caller} no longer calls {method}."
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Patch(Touch):
    """An attribute that this package replaces in the library."""

    is_new: bool = False
    """Whether the library has no such attribute."""

    KIND = "patch"

    def problem(self) -> str | None:
        """Return what the installed release does differently, or None."""
        owner = Touch(target=self.target.rpartition(".")[0], why=self.why)
        return owner.problem() if self.is_new else super().problem()

    def replace(self, make: Callable[[Any], Any]) -> Any:
        """Replace the attribute by `make(original)` for the whole process, and return the original.

        Examples:
            >>> row = Patch(target="optimum_neuron.version.__version__", why="an example")
            >>> original = row.replace(lambda text: text + "+local")
            >>> row.resolve().endswith("+local"), row.set(original)
            (True, None)
        """
        original = self.resolve()
        self.set(make(original))
        return original

    def set(self, value: object) -> None:
        """Set the attribute."""
        owner, _, attribute = self.target.rpartition(".")
        setattr(pkgutil.resolve_name(owner), attribute, value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassName(Touch):
    """A class or function of a file that is recognized by its name: the file is not imported for it."""

    KIND = "recognized by name"

    @property
    def name(self) -> str:
        """The name without its module."""
        return self.target.rpartition(".")[2]

    def matches(self, value: object) -> bool:
        """Return whether the class of `value` has this name.

        >>> ClassName(target="fractions.Fraction", why="an example").matches(2)
        False
        """
        return type(value).__name__ == self.name


@contextlib.contextmanager
def replaced(owner: object, attributes: Mapping[str, Any]) -> Iterator[None]:
    """Replace attributes of a module or class for a while; those that it lacks are removed again.

    >>> import fractions
    >>> with replaced(fractions, {"Fraction": int}):
    ...     fractions.Fraction(2)
    2
    """
    before = {name: vars(owner)[name] for name in attributes if name in vars(owner)}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name in attributes:
            if name in before:
                setattr(owner, name, before[name])
            elif name in vars(owner):
                delattr(owner, name)


def import_name(module: str, rows: tuple[Name, ...], name: str) -> Any:
    """Import the name of a row, for the `__getattr__` of a module, and keep it there."""
    # Every `from module import` asks for `__path__`, which would compare it with all rows.
    row = None if name.startswith("__") else next((row for row in rows if row.name() == name), None)
    if row is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    value = row.resolve()
    setattr(sys.modules[module], name, value)
    return value


def _parameters(value: Any) -> set[str]:
    """Parameters of a function, class, or operator; those of a function that takes `**kwargs` are not known."""
    schema = getattr(getattr(value, "default", value), "_schema", None)
    if schema is not None:
        return {argument.name for argument in schema.arguments}
    return set(inspect.signature(value).parameters)


def _names(function: Any) -> set[str]:
    """Names that the code of a function uses, also in functions inside it."""
    function = inspect.unwrap(function)
    function = function.func if isinstance(function, functools.partial) else function
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [value for value in code.co_consts if isinstance(value, CodeType)]
    return names
