"""All rows hold for the installed releases, and no other file touches a private part of a library."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import pkgutil
from collections.abc import Iterator

import pytest

from optimum_neuron import upstream
from optimum_neuron.upstream.contract import Name, Override, Touch
from tests.tree import ROOT, syntax

MODULES = [
    importlib.import_module(f"{upstream.__name__}.{info.name}")
    for info in pkgutil.iter_modules(upstream.__path__)
    if info.name not in ("contract", "cache_argument")
]
ROWS: list[Touch] = [row for module in MODULES for row in module.ROWS]
PACKAGE = ROOT / "optimum_neuron"
TREES = {path.relative_to(PACKAGE): syntax(path) for path in sorted(PACKAGE.rglob("*.py"))}
LIBRARIES = frozenset(row.target.partition(".")[0] for row in ROWS)
MIXED = "optimum_neuron.trainer."
OVERRIDING = (
    *("optimum_neuron.modeling.", "optimum_neuron.pipelines.", "optimum_neuron.trainer.", "optimum_neuron.tracing."),
    *(
        "optimum_neuron.compiler.lower.wrapper",
        "optimum_neuron.models.",
        "optimum_neuron.exporters.",
        "optimum_neuron.serving.",
    ),
)
"""Packages with classes that are derived from those of libraries."""
DOCUMENTED = ("torch._check",)
"""Names that are public in spite of their spelling."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.target)
def test_the_installed_release_has_what_a_row_says(row):
    if importlib.util.find_spec(row.target.partition(".")[0]) is None:
        pytest.skip("not installed")
    assert row.problem() is None


def is_private(words: list[str]) -> bool:
    return any(word.startswith("_") and not word.startswith("__") for word in words)


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Names that a file gives to parts of libraries, with their full names."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return names


def private_touches(tree: ast.AST) -> Iterator[str]:
    """Imports and attributes of libraries that have a private part in their name."""
    imported = imported_names(tree)
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            first, _, rest = ast.unparse(node).partition(".")
            names = [f"{imported.get(first, first)}.{rest}"]
        for name in names:
            words = name.split(".")
            if words[0] in LIBRARIES and is_private(words) and not name.startswith(DOCUMENTED):
                yield f"{node.lineno}: {name}"


def test_no_other_file_touches_a_private_part():
    found = [
        f"{file}:{touch}"
        for file, tree in TREES.items()
        if file.parts[0] != "upstream"
        for touch in private_touches(tree)
    ]
    assert found == []


def test_no_row_is_unused():
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    used = {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and "upstream" in (node.module or "")
        for alias in node.names
    }
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "private"}
    assert {row.name() for row in ROWS if isinstance(row, Name)} <= used


def overridden() -> Iterator[tuple[str, str]]:
    """Private methods of libraries that a class of the package overrides, with the class."""
    import transformers
    import trl

    hosts = (transformers.Seq2SeqTrainer, trl.SFTTrainer, trl.DPOTrainer, trl.GRPOTrainer)
    for info in pkgutil.walk_packages([str(PACKAGE)], "optimum_neuron."):
        if info.name.startswith(OVERRIDING):
            for kind in vars(importlib.import_module(info.name)).values():
                if isinstance(kind, type) and kind.__module__ == info.name:
                    # Mix-ins of trainers know their hosts by no base class.
                    bases = [
                        *kind.__mro__[1:],
                        *(base for host in hosts for base in host.__mro__ if MIXED in info.name),
                    ]
                    for name, base in itertools.product(vars(kind), bases):
                        if is_private([name]) and name in vars(base) and base.__module__.split(".")[0] in LIBRARIES:
                            yield f"{base.__module__}.{base.__qualname__}.{name}", kind.__name__


def test_every_overridden_private_method_has_a_row():
    targets = {row.target for row in ROWS if isinstance(row, Override)}
    names = {target.rpartition(".")[2] for target in targets}
    found = set(overridden())
    assert {name for name, _ in found if name.rpartition(".")[2] not in {*names, "_abc_impl"}} == set()
    assert targets <= {name for name, _ in found}


@pytest.mark.parametrize(
    "row",
    [
        Touch(target="torch._inductor.no_such_module.name", why="an example"),
        Touch(target="torch.nn.Linear.no_such_method", why="an example"),
        Touch(target="torch.nn.Linear.forward", why="an example", parameters=("no_such_parameter",)),
        Override(target="torch.nn.Module._load_from_state_dict", why="an example", callers=("torch.nn.Module.train",)),
    ],
)
def test_a_broken_contract_names_the_row_and_the_release(row):
    problem = row.problem()
    assert problem is not None and row.target.rpartition(".")[2] in problem or "lost" in problem
    assert problem.startswith("torch 2.")


def test_an_unknown_name_is_no_attribute():
    from optimum_neuron.upstream import inductor

    with pytest.raises(AttributeError):
        inductor.no_such_name  # noqa: B018
