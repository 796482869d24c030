"""Every example in a docstring runs: ```python blocks, lines with `>>>`, and usage lines without a fence.

Usage lines are short and may use undefined objects (`model`); only their imports, calls, and keywords are checked.
"""

from __future__ import annotations

import ast
import builtins
import doctest
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import transformers

import optimum_neuron
from tests.docs import fences
from tests.docs.fences import PYTHON, Fence
from tests.tree import NEEDS_EXTRA, ROOT, lacks_extra, syntax

OBJECTS = {"Path", "compile_fx", "load", "model", "wrap"}
"""Names that usage lines call without importing or making them."""
DOWNLOADS = re.compile(r"smollm2|Llama|path/or|fetch|from_pretrained|pipeline\(")
"""Self-contained usage lines that are not run, because they need a model."""


FILES = sorted((ROOT / "optimum_neuron").rglob("*.py"))
TREES = {path: syntax(path) for path in FILES}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of modules, classes, and functions, which docstrings are among."""
    for statement in body:
        yield statement
        yield from statements(getattr(statement, "body", []))


DOCSTRINGS = [
    (path, node.lineno, node.value.value)
    for path, tree in TREES.items()
    for node in statements(tree.body)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
]
"""File, line and text of each docstring; fields' docstrings too."""
DEFINED = {
    node.name for tree in TREES.values() for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
}
"""Functions and classes of all modules; usage lines may leave out the import of a neighbor."""
BLOCKS: list[Fence] = [
    fence
    for path, line, text in DOCSTRINGS
    for fence in fences.find_fences(text, path, line)
    if fence.language in PYTHON
]
DOCTESTS = [example for example in DOCSTRINGS if doctest.DocTestParser().get_examples(example[-1])]


def module_of(path) -> Any:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if lacks_extra(name):
        pytest.skip(f"pip install {NEEDS_EXTRA[name]}")
    return importlib.import_module(name)


def test_there_are_examples():
    assert len(BLOCKS) > 20 and len(DOCTESTS) > 5


@pytest.mark.full(days=14)
@pytest.mark.parametrize("fence", BLOCKS, ids=str)
def test_blocks_run(fence):
    assert fence.tags <= {"no-run"}
    if "no-run" in fence.tags:
        fences.compiled(fence)
    else:
        fences.run_here([fence])


@pytest.mark.full(days=2)
@pytest.mark.parametrize(
    ("path", "line", "text"), DOCTESTS, ids=[f"{path.relative_to(ROOT)}:{line}" for path, line, _ in DOCTESTS]
)
def test_doctests_run(path, line, text):
    names = vars(module_of(path)).copy()
    test = doctest.DocTestParser().get_doctest(text, names, f"{path.relative_to(ROOT)}:{line}", str(path), line)
    messages: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=messages.append)
    assert not messages, "".join(messages)


def usages(text: str) -> Iterator[str]:
    """Usage lines of a docstring: indented lines, or a paragraph, that are Python with a call or import."""
    text = re.sub(r"^( *)```.*?^\1```", "", inspect.cleandoc(text), flags=re.MULTILINE | re.DOTALL)
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+|(?:^\S.*\n(?:.+\n)*)", text + "\n", flags=re.MULTILINE):
        code = textwrap.dedent(block).strip("\n")
        try:
            nodes = list(ast.walk(ast.parse(code)))
        except SyntaxError:
            continue
        if any(isinstance(node, ast.Import | ast.ImportFrom | ast.Call) for node in nodes):
            yield code


USAGES = [(path, code) for path, _, text in DOCSTRINGS for code in usages(text)]


def problems(code: str, module: Any) -> Iterator[str]:
    """Names that usage lines import, call or pass by keyword, and that do not exist."""
    known: dict[str, Any] = {**vars(builtins), **vars(module)}
    result = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            source = importlib.import_module(node.module or "")
            names = {alias.asname or alias.name: getattr(source, alias.name, None) for alias in node.names}
            known |= names
            yield from (f"{node.module} has no {name}" for name, value in names.items() if value is None)
        elif isinstance(node, ast.Import):
            known |= {alias.name: importlib.import_module(alias.name) for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            result.add(node.id)
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            continue
        name, *attributes = ast.unparse(node.func).split(".")
        if name in result or name in OBJECTS or not name.isidentifier():
            continue
        function = known.get(name, getattr(optimum_neuron, name, getattr(transformers, name, None)))
        if function is None and not attributes and name not in DEFINED:
            yield f"{name} is not defined"
        for attribute in attributes if function is not None else ():
            function = getattr(function, attribute, None)
        if callable(function) and not inspect.isbuiltin(function):
            try:
                parameters = inspect.signature(function).parameters
            except ValueError:  # a class that is made as str is
                continue
            if all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values()):
                yield from (f"{name} takes no {word.arg}" for word in node.keywords if word.arg not in parameters)


@pytest.mark.parametrize(("path", "code"), USAGES, ids=[f"{path.relative_to(ROOT)}" for path, _ in USAGES])
def test_usage_lines_name_existing_commands(path, code):
    assert list(problems(code, module_of(path))) == []
    nodes = list(ast.walk(ast.parse(code)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names}
    names = {(node.id, type(node.ctx)) for node in nodes if isinstance(node, ast.Name)}
    free = {name for name, _ in names} - imported - {name for name, context in names if context is ast.Store}
    if imported and free <= set(dir(builtins)) and not DOWNLOADS.search(code):
        fences.run_here([Fence(path=path, line=0, language="python", tags=frozenset(), text=code)])
