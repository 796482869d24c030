"""Tables of the Python that the hardware's compiler takes: statements, expressions, builtins, with the fix of each.

The compiler reads a kernel's syntax tree. What it has no case for is in these tables. Its language guide says what
values, containers, loops and classes there are; its front end is public as the KLR project.
"""

from __future__ import annotations

import ast
import dataclasses

from ..core import PlainData

GUIDE = "Neuron docs, NKI, language guide"
FRONT_END = "leanprover/KLR, interop/klr/gather.c (the compiler's front end)"
BUILTIN_SOURCE = "leanprover/KLR, KLR/Trace/Python.lean (the compiler's builtins)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(PlainData):
    """A place in a kernel that the hardware's compiler does not take."""

    rule: str
    message: str
    hint: str
    """What to write instead."""
    line: str
    """Line of the kernel, as `file.py:12`."""
    source: str
    document: str
    """Public document that the rule is from."""


@dataclasses.dataclass(frozen=True)
class Syntax:
    """Syntax that the compiler has no case for."""

    rule: str
    what: str
    hint: str
    """What to write instead."""


_TRY = Syntax("try", "a try statement", "Decide with if and else; use assert for what must not happen.")
_ASYNC = Syntax("async", "asynchronous code", "Use plain functions and loops.")
_GENERATOR = Syntax("generator", "a generator", "Append to a list, and return it.")
_COMPREHENSION = Syntax("comprehension", "a comprehension", "Append to a list in a for loop.")
_IMPORT = Syntax("import", "an import inside a function", "Import at the top of the module.")
_SCOPE = Syntax("global", "an assignment to names outside the function", "Pass a dict between functions.")

STATEMENTS: dict[type[ast.AST], Syntax] = {
    ast.Try: _TRY,
    ast.TryStar: _TRY,
    ast.Raise: Syntax("raise", "a raise statement", "Use assert, or if and else."),
    ast.Delete: Syntax("del", "a del statement", "Leave it out: a tile ends with its last use."),
    ast.Match: Syntax("match", "a match statement", "Use if and elif, or look up in a dict."),
    ast.FunctionDef: Syntax("inner function", "a function inside a function", "Move it to the module."),
    ast.Lambda: Syntax("inner function", "a lambda", "Write a function in the module."),
    ast.ClassDef: Syntax("inner class", "a class inside a function", "Move it to the module."),
    ast.AsyncFunctionDef: _ASYNC,
    ast.AsyncFor: _ASYNC,
    ast.AsyncWith: _ASYNC,
    ast.Await: _ASYNC,
    ast.Import: _IMPORT,
    ast.ImportFrom: _IMPORT,
    ast.Global: _SCOPE,
    ast.Nonlocal: _SCOPE,
    ast.Yield: _GENERATOR,
    ast.YieldFrom: _GENERATOR,
    ast.GeneratorExp: _GENERATOR,
    ast.ListComp: _COMPREHENSION,
    ast.SetComp: _COMPREHENSION,
    ast.DictComp: _COMPREHENSION,
    ast.Set: Syntax("set", "a set", "Use a list, or a dict with text as keys."),
    ast.NamedExpr: Syntax("walrus", "an assignment inside an expression", "Assign in a statement of its own."),
}
"""Statements and expressions that the front end refuses."""

BUILTINS = frozenset(
    (
        *("abs", "bool", "dict", "divmod", "float", "int", "isinstance", "len", "list", "max", "min", "print"),
        *("range", "slice", "str", "tuple"),
    )
)
"""Builtins that the compiler has; `max`, `tuple` and `isinstance` are those that published kernels use."""

MATH = frozenset(["ceil", "e", "floor", "gcd", "inf", "log10", "log2", "nan", "pi", "pow", "sqrt"])
"""Names of `math` that the compiler has."""

LOOPS = {"enumerate": "range(len(...))", "zip": "range(len(...))", "reversed": "list.reverse()", "sum": "a for loop"}
"""What replaces the builtins that kernels miss most."""

INT32 = 2**31
