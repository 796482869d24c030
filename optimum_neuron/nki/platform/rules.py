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
from .. import language as nl
from ..operators import Operator
from . import syntax
from .syntax import Problem

_OURS = ("optimum_neuron", "nki", "neuronxcc")
_MISSING: Any = object()


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
        add = functools.partial(self._add, node, function)
        match node:
            case ast.With() if not all(_keeps_order(item.context_expr) for item in node.items):
                add(syntax.WITH)
            case ast.Constant(value=complex() | bytes() as value):
                add(syntax.VALUE, kind=type(value).__name__)
            case ast.Constant(value=int() as value) if not -syntax.INT32 <= value < syntax.INT32:
                add(syntax.WIDE, value=value)
            case ast.Dict():
                for key in node.keys:
                    if isinstance(key, ast.Constant) and not isinstance(key.value, str):
                        add(syntax.KEY, key=key.value)
            case ast.Call():
                self._call(node, function)
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                if isinstance(_found(node, function), np.ndarray | torch.Tensor):
                    add(syntax.CLOSURE, text=ast.unparse(node))
            case _ if type(node) in syntax.STATEMENTS:
                add(syntax.STATEMENTS[type(node)])

    def _call(self, node: ast.Call, function: object) -> None:
        found = _found(node.func, function)
        if found is _MISSING or isinstance(found, Operator) or _module(called := _plain(found)) in _OURS:
            return
        name, own_name = ast.unparse(node.func), name_of(called)
        add = functools.partial(self._add, node, function, name=name)
        if isinstance(called, type) and called.__module__ != "builtins":
            if not issubclass(called, (nl.NKIObject, enum.Enum)):
                add(syntax.CLASS)
        elif vars(builtins).get(own_name) is called:
            if own_name not in syntax.BUILTINS:
                add(syntax.BUILTIN, other=syntax.LOOPS.get(own_name, "what the language guide has"))
        elif _module(called) == "math":
            if own_name not in syntax.MATH:
                add(syntax.MATH_FUNCTION, others=", math.".join(sorted(syntax.MATH)))
        elif not _is_library(called):
            if isinstance(called, types.FunctionType) and called.__code__ in self._open:
                add(syntax.RECURSION)
            else:
                self.read(called)
        elif callable(called):
            add(syntax.LIBRARY, module=_module(called))

    def _add(self, node: Any, function: Any, row: syntax.Syntax, **values: object) -> None:
        code = function.__code__
        number = code.co_firstlineno + node.lineno - 1
        self.problems.append(
            Problem(
                rule=row.rule,
                message=row.message.format(**values),
                hint=row.hint.format(**values),
                line=f"{code.co_filename}:{number}",
                source=linecache.getline(code.co_filename, number).strip(),
                document=row.document,
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
