"""Reads the source of a kernel, and of the functions that it calls, for what the hardware's compiler does not take.

Names are looked up where the function looks them up, so a call of another function is followed, as the compiler inlines
it. A function that is passed as a value is not followed.
"""

from __future__ import annotations

import ast
import builtins
import enum
import functools
import inspect
import linecache
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...base.foreign import name_of
from ...errors import KernelError
from .. import language
from ..operators import Operator
from . import syntax
from .syntax import Problem

_OURS = ("optimum_neuron", "nki", "neuronxcc")
_MISSING: Any = object()
nl: Any = language
"""Its names are made at run time."""


def problems_of(kernel: Callable[..., Any]) -> list[Problem]:
    """Return what the hardware's compiler does not take of a kernel; nothing if its source is not there."""
    reader = _Reader()
    reader.read(_plain(kernel))
    return reader.problems


def check(kernel: Callable[..., Any]) -> None:
    """Refuse a kernel that the hardware's compiler does not take."""
    problems = problems_of(kernel)
    if not problems:
        return
    first = problems[0]
    places = "".join(
        f"\n  {Path(one.line).name}: {one.source}\n    {one.message} {one.hint} [{one.rule}]" for one in problems
    )
    name = _plain(kernel).__name__
    message = f"The hardware's compiler does not take the kernel {name}:{places}"
    raise KernelError(
        message,
        hint=first.hint,
        rule=first.rule,
        line=first.line,
        problems=[one.to_dict() for one in problems],
    )


def _plain(function: Any) -> Any:
    """Return the function that a kernel, a partial or a method is of."""
    while True:
        function = inspect.unwrap(function)
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif callable(inner := getattr(function, "function", None)):  # of a kernel, whose module is above this one
            function = inner
        else:
            return function


class _Reader:
    """Functions that were read, and what was found."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._done: set[types.CodeType] = set()
        self._open: list[types.CodeType] = []

    def read(self, function: object) -> None:
        """Read a function of Python, and those that it calls."""
        if not isinstance(function, types.FunctionType) or (code := function.__code__) in self._done:
            return
        tree = _tree(function)
        if tree is None:
            return
        self._open.append(code)
        for node in _nodes(tree.body):
            self._look(node, function)
        self._open.pop()
        self._done.add(code)

    def _look(self, node: ast.AST, function: object) -> None:
        unknown = syntax.STATEMENTS.get(type(node))
        if unknown is not None:
            self._add(node, function, unknown.rule, f"This is {unknown.what}.", unknown.hint, syntax.FRONT_END)
        elif isinstance(node, ast.With) and not all(_keeps_order(item.context_expr) for item in node.items):
            hint = "Use nl.no_reorder, or write the statements without it."
            self._add(node, function, "with", "This is a with statement.", hint, syntax.FRONT_END)
        elif isinstance(node, ast.Constant):
            self._constant(node, function)
        elif isinstance(node, ast.Dict):
            self._keys(node, function)
        elif isinstance(node, ast.Call):
            self._call(node, function)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            self._value(node, function)

    def _constant(self, node: ast.Constant, function: object) -> None:
        value = node.value
        if isinstance(value, complex | bytes):
            message, hint = f"This is a {type(value).__name__} value.", "Use None, bool, int, float or text."
            self._add(node, function, "value", message, hint, syntax.GUIDE)
        elif isinstance(value, int) and not -syntax.INT32 <= value < syntax.INT32:
            hint = "Use numbers of 32 bits."
            self._add(node, function, "value", f"{value} needs more than 32 bits.", hint, syntax.GUIDE)

    def _keys(self, node: ast.Dict, function: object) -> None:
        for key in node.keys:
            if isinstance(key, ast.Constant) and not isinstance(key.value, str):
                message = f"The key {key.value!r} of a dict is no text."
                self._add(node, function, "dict", message, "Use text as keys.", syntax.GUIDE)

    def _value(self, node: ast.Name | ast.Attribute, function: object) -> None:
        value = _found(node, function)
        if isinstance(value, np.ndarray | torch.Tensor):
            message = f"{ast.unparse(node)} is an array outside the kernel."
            self._add(node, function, "closure", message, "Pass it as an argument.", syntax.GUIDE)

    def _call(self, node: ast.Call, function: object) -> None:
        found = _found(node.func, function)
        if found is _MISSING or isinstance(found, Operator):
            return
        called, name = _plain(found), ast.unparse(node.func)
        own_name = name_of(called)
        if _module(called) in _OURS:
            return
        if isinstance(called, type) and called.__module__ != "builtins":
            if not issubclass(called, (nl.NKIObject, enum.Enum)):
                message = f"The class {name} is none of nl.NKIObject."
                self._add(node, function, "class", message, "Derive it from nl.NKIObject only.", syntax.GUIDE)
        elif vars(builtins).get(own_name) is called:
            if own_name not in syntax.BUILTINS:
                hint = f"Use {syntax.LOOPS.get(own_name, 'what the language guide has')}."
                message = f"{name} is a builtin that the compiler does not have."
                self._add(node, function, "builtin", message, hint, syntax.BUILTIN_SOURCE)
        elif _module(called) == "math":
            if own_name not in syntax.MATH:
                message, hint = (
                    f"The compiler does not have {name}.",
                    f"It has math.{', math.'.join(sorted(syntax.MATH))}.",
                )
                self._add(node, function, "builtin", message, hint, syntax.BUILTIN_SOURCE)
        elif isinstance(called, types.FunctionType) and not _is_library(called):
            self._follow(node, function, called)
        elif callable(called) and _is_library(called):
            message = f"{name} is a function of {_module(called)}, which runs on the host."
            hint = "Compute it before the kernel is called, and pass it; or use nki.isa and nki.language."
            self._add(node, function, "library", message, hint, syntax.GUIDE)

    def _follow(self, node: ast.Call, function: object, called: types.FunctionType) -> None:
        if called.__code__ in self._open:
            message = f"{called.__name__} calls itself, and every call is inlined."
            self._add(node, function, "recursion", message, "Write it as a loop.", syntax.GUIDE)
        else:
            self.read(called)

    def _add(self, node: Any, function: Any, rule: str, message: str, hint: str, document: str) -> None:
        code = function.__code__
        number = code.co_firstlineno + node.lineno - 1
        self.problems.append(
            Problem(
                rule=rule,
                message=message,
                hint=hint,
                line=f"{code.co_filename}:{number}",
                source=linecache.getline(code.co_filename, number).strip(),
                document=document,
            )
        )


def _tree(function: Any) -> ast.FunctionDef | None:
    """Return the syntax tree of a function, or None without its source."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
        parsed = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    return parsed if isinstance(parsed, ast.FunctionDef) else None


def _nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield nodes in the order of the text; what is inside refused syntax is left out, and so are annotations."""
    stack: list[ast.AST] = list(reversed(body))
    while stack:
        node = stack.pop()
        yield node
        if type(node) in syntax.STATEMENTS and not isinstance(node, ast.Try | ast.TryStar):
            continue
        children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.AnnAssign):
            children.remove(node.annotation)
        stack += reversed(children)


def _keeps_order(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return isinstance(called, ast.Attribute | ast.Name) and ast.unparse(called).endswith("no_reorder")


def _found(node: ast.AST, function: Any) -> Any:
    """Return what a name or an attribute of one is, where a function looks it up; `_MISSING` for a local one."""
    if isinstance(node, ast.Attribute):
        owner = _found(node.value, function)
        known = isinstance(owner, types.ModuleType | type)
        return getattr(owner, node.attr, _MISSING) if known else _MISSING
    if not isinstance(node, ast.Name):
        return _MISSING
    code = function.__code__
    if node.id in code.co_freevars:
        cell = function.__closure__[code.co_freevars.index(node.id)]
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING
    if node.id in code.co_varnames or node.id in code.co_cellvars:
        return _MISSING
    return function.__globals__.get(node.id, getattr(builtins, node.id, _MISSING))


def _module(called: object) -> str:
    return _full_module(called).partition(".")[0]


def _full_module(called: object) -> str:
    return str(getattr(called, "__module__", None) or type(called).__module__)


@functools.cache
def _folders() -> tuple[str, ...]:
    return str(Path(inspect.__file__).parent), "site-packages"


def _is_library(called: object) -> bool:
    """Return whether a callable is one of the standard library or of an installed package."""
    module = _module(called)
    if module in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(_full_module(called)), "__file__", None) or ""
    return any(part in file for part in _folders())
