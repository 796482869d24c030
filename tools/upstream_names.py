"""Count the public classes and functions of Optimum Neuron that can be imported here.

    python tools/upstream_names.py CHECKOUT

CHECKOUT is a git repository of Optimum Neuron. It is read, never imported. `docs/migration.md` has the figures.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import subprocess
import warnings

ROOT = "optimum/neuron"


def git(checkout: str, *words: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", checkout, *words], capture_output=True, text=True, check=True).stdout


def names_of(source: str, *, is_package: bool) -> set[str]:
    """Return the classes and functions that a module defines; those that a package imports from its own modules."""
    nodes = list(ast.walk(ast.parse(source))) if is_package else ast.parse(source).body
    names = {node.name for node in ast.parse(source).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    for node in nodes:
        if is_package and isinstance(node, ast.ImportFrom) and node.level:
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


def missing_names(module: str, names: set[str]) -> list[str]:
    """Return the names that cannot be imported from a module, sorted."""
    try:
        imported = importlib.import_module(module)
    except ImportError:
        return sorted(names)
    return sorted(name for name in names if not hasattr(imported, name))


def main() -> int:
    """Print what is missing in each module, then the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout")
    parser.add_argument("--ref", default="HEAD", help="commit or tag of the checkout")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    total = missing = 0
    for file in git(args.checkout, "ls-tree", "-r", "--name-only", args.ref, ROOT).splitlines():
        if not file.endswith(".py"):
            continue
        source = git(args.checkout, "show", f"{args.ref}:{file}")
        names = names_of(source, is_package=file.endswith("__init__.py"))
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        absent = missing_names(module, names)
        total, missing = total + len(names), missing + len(absent)
        if absent or file == f"{ROOT}/__init__.py":
            print(f"{module}: {len(names) - len(absent)} of {len(names)}; missing {', '.join(absent) or 'none'}")
    print(f"{total - missing} of {total} names can be imported, upstream of", end=" ")
    print(git(args.checkout, "log", "-1", "--format=%ad %h", "--date=short", args.ref).strip())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
