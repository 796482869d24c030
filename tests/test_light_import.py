"""Imports: the package is light, and every module can be the first one that is imported.

A module can be the first if nothing that it imports imports it in turn, so imports at the top of modules must have no
cycle. Light modules are each imported in a fork of a fresh interpreter.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tree import lacks_extra, syntax

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ["accelerate", "huggingface_hub", "numpy", "optimum", "rich", "safetensors", "torch", "transformers"]

LIGHT = [
    "optimum_neuron", "optimum_neuron.buckets", "optimum_neuron.checking", "optimum_neuron.checkpoints",
    "optimum_neuron.compiler.cache", "optimum_neuron.compiler.neff", "optimum_neuron.options.configuration",
    "optimum_neuron.base.core", "optimum_neuron.base.env", "optimum_neuron.errors", "optimum_neuron.exporters",
    "optimum_neuron.hardware", "optimum_neuron.modeling", "optimum_neuron.pipelines", "optimum_neuron.profiling",
    "optimum_neuron.profiling.child", "optimum_neuron.profiling.script", "optimum_neuron.runtime",
    "optimum_neuron.serving", "optimum_neuron.serving.options",
    "optimum_neuron.tracing", "optimum_neuron.trainer", "optimum_neuron.trainer.post_training",
    "optimum_neuron.vllm_neuron.command",
]  # fmt: skip
"""Modules that must import fast; the command line's are tested by `tests/cli/test_surface.py`."""

FORKS = """
import importlib, json, os, sys, traceback
modules, heavy, bytecode = json.loads(sys.argv[1])
sys.pycache_prefix, sys.dont_write_bytecode = bytecode, False
assert not any(name.partition(".")[0] == "optimum_neuron" for name in sys.modules)
for module in modules:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        try:
            importlib.import_module(module)
            said = {"heavy": [name for name in heavy if name in sys.modules]}
        except BaseException:
            said = {"error": traceback.format_exc()}
        os.write(writer, json.dumps(said).encode()[:60_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        print(json.dumps([module, json.loads(pipe.read() or "null")]), flush=True)
    os.wait()
"""


def import_each(modules: list[str], folder: Path) -> dict[str, dict]:
    """Import each module in a fork of one fresh interpreter; report its imports, or the traceback."""
    words = json.dumps([modules, HEAVY, str(folder)])
    # torch itself would import the device.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-c", FORKS, words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(line) for line in result.stdout.splitlines())


def all_modules(root: Path, package: str) -> dict[str, Path]:
    """Names and files of the modules of a package."""
    paths = sorted((root / package).rglob("*.py"))
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}
    return {name: path for name, path in names.items() if not name.endswith("__main__")}


def import_graph(root: Path, package: str, *, in_functions: bool = False) -> dict[str, set[str]]:
    """Modules of a package, each with the modules that it imports before it is complete, or ever."""
    modules = all_modules(root, package)
    exports = {name: _relative_imports(path.with_suffix(".pyi"), name, True) for name, path in modules.items()}

    def target(module: str, name: str) -> str:
        if f"{module}.{name}" in modules:
            return f"{module}.{name}"
        source = dict((exported, origin) for origin, exported in exports[module]).get(name)
        return module if source is None else target(source, name)

    return {
        module: {
            target(origin, name)
            for origin, name in _relative_imports(path, module, path.name == "__init__.py", in_functions)
            if origin in modules
        }
        - {module}
        for module, path in modules.items()
    }


def _relative_imports(path: Path, module: str, is_package: bool, in_functions: bool = False) -> list[tuple[str, str]]:
    """Imports from the same package at the top of a file, or everywhere in it: origin and name of each."""
    if not path.exists():
        return []
    parts = module.split(".") if is_package else module.split(".")[:-1]
    tree = syntax(path) if ROOT in path.parents else ast.parse(path.read_text(encoding="utf-8"))
    pending: list[ast.AST] = list(ast.walk(tree)) if in_functions else [*tree.body]
    result = []
    for statement in pending:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            base = parts[: len(parts) + 1 - statement.level]
            origin = ".".join([*base, *([statement.module] if statement.module else [])])
            result += [(origin, alias.name) for alias in statement.names]
        elif isinstance(statement, ast.If | ast.Try) and not in_functions:
            pending += [] if "TYPE_CHECKING" in ast.unparse(statement).split(":")[0] else statement.body
    return result


def test_imports_at_the_top_have_no_cycle():
    graph = import_graph(ROOT, "optimum_neuron")
    assert len(graph) > 80 and sum(map(len, graph.values())) > 1000
    TopologicalSorter(graph).prepare()


@pytest.mark.full(days=3)
def test_every_module_can_be_imported_first():
    graph = import_graph(ROOT, "optimum_neuron")
    order = [name for name in TopologicalSorter(graph).static_order() if name in graph and not lacks_extra(name)]
    code = f"import importlib\nfor name in {order}:\n    importlib.import_module(name)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_files_of_the_device_import_in_one_direction():
    graph = import_graph(ROOT, "optimum_neuron", in_functions=True)
    inside = {name: others for name, others in graph.items() if name.startswith("optimum_neuron.device")}
    assert inside["optimum_neuron.device.module.memory"] >= {"optimum_neuron.device.library"}
    TopologicalSorter({name: others & inside.keys() for name, others in inside.items()}).prepare()


def test_programs_without_kernels_load_no_kernel_language():
    graph = import_graph(ROOT, "optimum_neuron")
    reached = {name for name in graph if name.startswith(("optimum_neuron.compiler.", "optimum_neuron.runtime."))}
    while more := {other for name in reached for other in graph[name]} - reached:
        reached |= more
    assert "optimum_neuron.nki" in reached, "looked up by name, for graphs that launch a kernel"
    assert {name for name in reached if name.startswith("optimum_neuron.nki.")} == set()


def test_check_detects_cycle(tmp_path):
    folder = tmp_path / "toy"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("from .first import f")
    (folder / "first.py").write_text("from .inner import g")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "inner" / "__init__.pyi").write_text("from .second import g as g")
    second = folder / "inner" / "second.py"
    second.write_text("def g():\n    from .. import first")
    assert import_graph(tmp_path, "toy")["toy.first"] == {"toy.inner.second"}
    TopologicalSorter(import_graph(tmp_path, "toy")).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(tmp_path, "toy", in_functions=True)).prepare()
    second.write_text("from ..first import f")
    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(tmp_path, "toy")).prepare()


def test_light_modules_import_nothing_heavy(tmp_path):
    result = import_each(LIGHT, tmp_path)
    assert result == {name: {"heavy": []} for name in LIGHT}


def test_check_detects_heavy_imports(tmp_path):
    module = "optimum_neuron.nki.random_numbers"  # of numpy alone: without its bytecode, torch takes 10 s
    assert import_each([module], tmp_path)[module]["heavy"] == ["numpy"]
