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
    """Python that the compiler does not take; its texts name values of the place."""

    rule: str
    message: str
    hint: str
    """What to write instead."""
    document: str = FRONT_END


_TRY = Syntax("try", "This is a try statement.", "Decide with if and else; use assert for what must not happen.")
_ASYNC = Syntax("async", "This is asynchronous code.", "Use plain functions and loops.")
_GENERATOR = Syntax("generator", "This is a generator.", "Append to a list, and return it.")
_COMPREHENSION = Syntax("comprehension", "This is a comprehension.", "Append to a list in a for loop.")
_IMPORT = Syntax("import", "This is an import inside a function.", "Import at the top of the module.")
_SCOPE = Syntax("global", "This is an assignment to names outside the function.", "Pass a dict between functions.")

STATEMENTS: dict[type[ast.AST], Syntax] = {
    ast.Try: _TRY,
    ast.TryStar: _TRY,
    ast.Raise: Syntax("raise", "This is a raise statement.", "Use assert, or if and else."),
    ast.Delete: Syntax("del", "This is a del statement.", "Leave it out: a tile ends with its last use."),
    ast.Match: Syntax("match", "This is a match statement.", "Use if and elif, or look up in a dict."),
    ast.FunctionDef: Syntax("inner function", "This is a function inside a function.", "Move it to the module."),
    ast.Lambda: Syntax("inner function", "This is a lambda.", "Write a function in the module."),
    ast.ClassDef: Syntax("inner class", "This is a class inside a function.", "Move it to the module."),
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
    ast.Set: Syntax("set", "This is a set.", "Use a list, or a dict with text as keys."),
    ast.NamedExpr: Syntax("walrus", "This is an assignment inside an expression.", "Assign in a statement of its own."),
}
"""Statements and expressions that the front end refuses."""

WITH = Syntax("with", "This is a with statement.", "Use nl.no_reorder, or write the statements without it.")
VALUE = Syntax("value", "This is a {kind} value.", "Use None, bool, int, float or text.", GUIDE)
WIDE = Syntax("value", "{value} needs more than 32 bits.", "Use numbers of 32 bits.", GUIDE)
KEY = Syntax("dict", "The key {key!r} of a dict is no text.", "Use text as keys.", GUIDE)
CLOSURE = Syntax("closure", "{text} is an array outside the kernel.", "Pass it as an argument.", GUIDE)
CLASS = Syntax("class", "The class {name} is none of nl.NKIObject.", "Derive it from nl.NKIObject only.", GUIDE)
RECURSION = Syntax("recursion", "{name} calls itself, and every call is inlined.", "Write it as a loop.", GUIDE)
BUILTIN = Syntax("builtin", "{name} is a builtin that the compiler does not have.", "Use {other}.", BUILTIN_SOURCE)
MATH_FUNCTION = Syntax("builtin", "The compiler does not have {name}.", "It has math.{others}.", BUILTIN_SOURCE)
LIBRARY = Syntax(
    "library",
    "{name} is a function of {module}, which runs on the host.",
    "Compute it before the kernel is called, and pass it; or use nki.isa and nki.language.",
    GUIDE,
)
"""Other Python that it refuses."""

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
