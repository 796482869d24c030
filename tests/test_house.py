"""The house rules: packages import in one direction and by their exports, and files and functions stay short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ORDER = (
    ("optimum_neuron",),
    ("tools",),
    ("cli",),
    ("demo", "serving", "trainer"),
    ("device", "distributed", "pipelines", "tracing"),
    ("modeling", "profiling"),
    ("checking", "simulator"),
    ("exporters",),
    ("batching",),
    ("artifact", "engine"),
    ("models", "runtime"),
    ("compiler",),
    ("nki",),
    ("buckets", "hardware", "native"),
    ("checkpoints", "configuration", "shared_objects", "startup"),
    ("decoder_checks", "peer_attributes"),
    ("weights",),
    ("progress", "records"),
    ("atomic", "env", "options", "plain_json", "private_folder", "sizes", "vendor"),
    ("env_text",),
    ("after_import", "cache_argument", "core", "errors", "labels", "upstream", "variables", "version", "wording"),
)
"""Packages and top-level modules, highest first: each may import modules of the rows below its own.

Imports within functions and for type checkers count too. Packages of one row do not know each other, so there is no
cycle. `optimum_neuron` is the package's `__init__` and `wiring.py`, which connect packages that must not import each
other.
"""
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60
"""A function's docstring does not count: the code should fit a screen, and its documentation should be complete."""

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "optimum_neuron"
FILES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {file: ast.parse(text) for file, text in FILES.items()}
RANK = {name: -number for number, row in enumerate(ORDER) for name in row}


def room(words: list[str]) -> str:
    """The package or top-level module that `optimum_neuron.<words>` is in."""
    return words[0] if words and words[0] in RANK else "optimum_neuron"


def imports() -> Iterator[tuple[str, str, str]]:
    """Importing and imported package, and where."""
    for file, tree in TREES.items():
        folder = file.parent.parts
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = [alias.name.split(".") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = ["optimum_neuron", *folder[: len(folder) + 1 - node.level]] if node.level else []
                module = [*base, *(node.module or "").split(".")] if node.module else base
                names = [[*module, alias.name] for alias in node.names]
            else:
                continue
            for words in names:
                if words[0] == "optimum_neuron":
                    yield room(list(file.with_suffix("").parts)), room(words[1:]), f"{file}:{node.lineno}"


def test_every_package_has_its_place():
    packages = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert packages - {"__init__", "wiring"} <= set(RANK)


def test_packages_import_only_lower_packages():
    upward = [
        f"{place}: {above} is not below {package}"
        for package, above, place in imports()
        if package != above and RANK[above] >= RANK[package]
    ]
    assert upward == []


def test_files_and_functions_are_short():
    long = {f"{file}" for file, text in FILES.items() if text.count("\n") > MAX_FILE_LINES}
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
                signature = node.body[0].lineno - node.lineno
                if (node.end_lineno or 0) - first.lineno + 1 + signature > MAX_FUNCTION_LINES:
                    long.add(f"{file}: {node.name}")
    assert long == set()


def modules_entered() -> Iterator[str]:
    """Imports of modules inside a package by files outside of it, which are not among its exports."""
    for path in sorted(
        path for top in ("optimum_neuron", "tests", "benchmarks") for path in (ROOT / top).rglob("*.py")
    ):
        folder = path.relative_to(ROOT).parent.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            base = folder[: len(folder) + 1 - node.level] if node.level else ()
            words = (*base, *(node.module or "").split(".")) if node.module else base
            package = words[:-1]
            if words[:2] == ("optimum_neuron", "upstream"):
                continue  # its modules stand for other libraries
            is_module = (ROOT.joinpath(*words).with_suffix(".py")).exists()
            if is_module and len(package) > 1 and package[0] == "optimum_neuron" and folder[: len(package)] != package:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {'.'.join(words)}"


def test_packages_are_entered_by_their_exports():
    assert list(modules_entered()) == []
