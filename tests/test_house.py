"""The house rules: packages import in one direction and by their exports, files and functions stay short, and tests are
in the folder of their package and match errors by class and details."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from optimum_neuron import errors
from tests.tree import syntax

ORDER = (
    ("optimum_neuron",),
    ("tools",),
    ("cli", "vllm_neuron"),
    ("studio",),
    ("nxd_training",),
    (
        "budgets",
        "demo",
        "neuronx_distributed_inference",
        "serving",
        "trainer",
        "transformers_neuronx",
    ),
    ("neuronx_distributed",),
    ("xla",),
    ("device", "distributed", "pipelines", "tracing"),
    ("modeling", "profiling"),
    ("checking", "simulator"),
    ("exporters",),
    ("kinds",),
    ("batching",),
    ("artifact", "engine", "sources"),
    ("models", "runtime"),
    ("compiler",),
    ("nki",),
    ("buckets", "hardware"),
    ("checkpoints",),
    ("options",),
    ("weights",),
    ("files", "pages"),
    ("base",),
    ("errors", "upstream", "version"),
)
"""Packages and top-level modules, highest first: each may import modules of the rows below its own.

Imports within functions and for type checkers count too. Packages of one row do not know each other, so there is no
cycle. `optimum_neuron` is the package's `__init__` and `wiring.py`, which connect packages that must not import each
other.
"""
INSIDE = {
    "exporters": (
        ("export",),
        ("diffusion",),
        ("prepare", "report"),
        ("hub_cache", "inspection", "load", "save", "warm"),
        ("cached", "folder"),
        ("build", "vendor_folder"),
        ("prepared", "request"),
        ("peer_options",),
        ("validation",),
    ),
    "kinds": (
        ("registry",),
        ("encoder_decoder", "multimodal"),
        ("decoder", "diffusion", "encoder"),
        ("base",),
        ("empty", "scenario"),
    ),
    "simulator": (
        ("capacity",),
        ("calibration", "grid", "ranking", "training"),
        ("entry",),
        ("configured",),
        ("clock", "known", "programs"),
        ("compiled", "decoders", "diffusion"),
        ("captures", "graph_choice", "graphs"),
        ("request",),
        ("speculation",),
        ("clients", "queueing", "serving"),
        ("result",),
        ("break_even", "stacks", "training_layout"),
        ("machine", "pipelined"),
        ("continuous", "device_time"),
        ("fitted", "rows", "work"),
    ),
    "sources": (
        ("lora",),
        ("adapters", "tensors"),
        ("pipelines", "references", "support"),
        ("source",),
        ("gguf",),
        ("file_types", "quantization"),
        ("copying", "layouts", "pipeline_index", "tasks"),
    ),
}
"""Modules and packages inside a package, likewise."""
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60
"""A function's docstring does not count: the code should fit a screen, and its documentation should be complete."""

MAX_ANY_PERCENT, MAX_GETATTR_WITH_DEFAULT = 4.6, 42
"""Arguments that are annotated with `Any` alone, and calls such as `getattr(x, "name", None)`: lower them, never raise
them. Own objects declare their attributes; configurations of transformers are read by `base/model_facts.py`, other
objects of libraries by `base/foreign.py`."""
OTHER_CONFIGS = {
    "base/foreign.py",
    "exporters/peer_options.py",
    "modeling/medusa.py",
    "models/generic/model.py",
    "sources/source.py",
    "transformers_neuronx/checkpoint.py",
}
"""Files in which `config: Any` is a configuration of another library; our own have their class."""

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "optimum_neuron"
FILES = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {file: syntax(PACKAGE / file) for file in FILES}
RANK = {name: -number for number, row in enumerate(ORDER) for name in row}
TESTS = {path.relative_to(ROOT / "tests"): syntax(path) for path in sorted((ROOT / "tests").rglob("*.py"))}


def room(words: list[str]) -> str:
    """The package or top-level module that `optimum_neuron.<words>` is in."""
    return words[0] if words and words[0] in RANK else "optimum_neuron"


def names_imported() -> Iterator[tuple[Path, list[str], int]]:
    """File, words of the name that it imports, and line."""
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
            yield from ((file, words[1:], node.lineno) for words in names if words[0] == "optimum_neuron")


def imports() -> Iterator[tuple[str, str, str]]:
    """Importing and imported package, and where."""
    for file, words, line in names_imported():
        yield room(list(file.with_suffix("").parts)), room(words), f"{file}:{line}"


@functools.cache
def arrows() -> frozenset[tuple[Path, Path]]:
    """Importing and imported file."""
    return frozenset(_arrows())


def _arrows() -> Iterator[tuple[Path, Path]]:
    for file, words, _ in names_imported():
        candidates = (Path(*words[:length]) for length in (len(words), len(words) - 1) if length)
        found = next(
            (path for name in candidates for path in (name.with_suffix(".py"), name / "__init__.py") if path in FILES),
            file,
        )
        if found != file:
            yield file, found


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


def test_files_import_in_one_direction():
    graph: dict[Path, set[Path]] = {}
    for file, found in arrows():
        graph.setdefault(file, set()).add(found)
    graphlib.TopologicalSorter(graph).prepare()  # CycleError has the files of a circle


def parts_imported(package: Path) -> dict[str, set[str]]:
    """The modules and packages inside a package, and which others each imports."""
    inside = {file.relative_to(package).parts[0].removesuffix(".py") for file in FILES if package in file.parents}
    graph: dict[str, set[str]] = {part: set() for part in inside - {"__init__"}}
    for files in arrows():
        if all(package in file.parents for file in files):
            part, other = (file.relative_to(package).parts[0].removesuffix(".py") for file in files)
            if part != other and "__init__" not in (part, other):
                graph[part].add(other)
    return graph


@pytest.mark.parametrize("package", sorted(INSIDE))
def test_parts_of_a_package_import_only_lower_parts(package):
    rank = {name: -number for number, row in enumerate(INSIDE[package]) for name in row}
    graph = parts_imported(Path(package))
    assert graph.keys() == rank.keys()
    assert [(part, other) for part in graph for other in graph[part] if rank[other] >= rank[part]] == []


def test_parts_of_packages_import_in_one_direction():
    for package in {file.parent for file in FILES if file.name == "__init__.py"}:
        graphlib.TopologicalSorter(parts_imported(package)).prepare()


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


def test_arguments_have_types_and_attributes_are_declared():
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    hints = [ast.unparse(node.annotation) for node in nodes if isinstance(node, ast.arg) and node.annotation]
    calls = [node for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr"]
    with_default = [call for call in calls if len(call.args) == 3 and isinstance(call.args[1], ast.Constant)]
    assert 100 * hints.count("Any") <= MAX_ANY_PERCENT * len(hints)
    assert len(with_default) <= MAX_GETATTR_WITH_DEFAULT


def test_configurations_of_this_package_have_their_class():
    untyped = set()
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation and ast.unparse(node.annotation) == "Any":
                name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
                if name in ("config", "neuron_config", "inference_config"):
                    untyped.add(str(file))
    assert untyped == OTHER_CONFIGS


OPEN = {("base",), ("files",), ("options",), ("upstream",)}
"""Packages without exports: each of their modules is one subject."""


def modules_entered() -> Iterator[str]:
    """Imports of modules inside a package by files outside of it; tests of a package may import its modules."""
    trees = {Path("optimum_neuron", file): tree for file, tree in TREES.items()}
    trees |= {Path("tests", file): tree for file, tree in TESTS.items()}
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        trees[path.relative_to(ROOT)] = ast.parse(path.read_text(encoding="utf-8"))
    for path, tree in trees.items():
        folder = path.parent.parts
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            base = folder[: len(folder) + 1 - node.level] if node.level else ()
            words = (*base, *(node.module or "").split(".")) if node.module else base
            package = words[:-1]
            if words[1:2] in OPEN:
                continue
            inside = folder[: len(package)] == package or folder[:2] == ("tests", *words[1:2])
            if inside or len(package) < 2 or package[0] != "optimum_neuron":
                continue
            if ROOT.joinpath(*words).with_suffix(".py").exists():
                yield f"{path}:{node.lineno}: {'.'.join(words)}"


def test_packages_are_entered_by_their_exports():
    assert list(modules_entered()) == []


EXPORTS = {
    path.parent.relative_to(PACKAGE): {
        alias.asname or alias.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for path in sorted(PACKAGE.rglob("__init__.pyi"))
    if path.parent != PACKAGE
}


def test_no_export_is_for_the_tests_of_its_package_alone():
    texts = {Path("tests", file): (ROOT / "tests" / file).read_text(encoding="utf-8") for file in TESTS}
    texts |= {Path("optimum_neuron", file): text for file, text in FILES.items()}
    for pattern in (
        "*.md",
        "docs/*.md",
        "benchmarks/**/*.py",
        "tools/**/*.py",
        "sdk/**/*.py",
        "sdk_vllm/**/*.py",
        "sdk_xla/**/*.py",
        "optimum_neuron/**/*.pyi",
    ):
        texts |= {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in ROOT.glob(pattern)}
    words = {file: set(re.findall(r"\w+", text)) for file, text in texts.items()}
    examples = "".join(line for text in FILES.values() for line in text.splitlines() if "from optimum_neuron." in line)
    words[Path("examples")] = set(re.findall(r"\w+", examples))
    for_tests = []
    for package, names in EXPORTS.items():
        inside, tests = Path("optimum_neuron", package), Path("tests", package.parts[0])
        left = set(names)
        for file, found in words.items():
            if tests not in file.parents and inside not in file.parents:
                left -= found
        dotted = ".".join(inside.parts)
        own = {name for name in left for file in TESTS if f"{dotted}.{name}" in imported_by(file)}
        for_tests += [f"{dotted}.{name}" for name in sorted(own)]
    assert for_tests == []


OTHER_FOLDERS = ("docs", "kinds/toy", "packaging", "sdk", "serving/clients", "tiny_pipelines", "tools")
"""Folders of tests that are no package's: parts of the repository beside it, other people's clients, and helpers."""


def test_folders_of_tests_are_those_of_packages():
    folders = {file.parent for file in TESTS if file.parent.parts}
    others = {folder for folder in folders if not (PACKAGE / folder / "__init__.py").exists()}
    assert [str(one) for one in sorted(others) if not str(one).startswith(OTHER_FOLDERS)] == []


TESTED_BY = {
    "kinds/encoder/patches": "kinds/encoder/test_architectures.py",
    "nki/instructions": "sdk/test_nki.py",
    "nki/language": "sdk/test_nki.py",
}
"""Packages that no test imports, and the test of what uses all of them."""


@functools.cache
def imported_by(file: Path) -> set[str]:
    """Modules that a test imports, with the names that it takes from them."""
    names = set()
    for node in ast.walk(TESTS[file]):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_every_package_has_tests():
    """In its folder, or in that of the package around it, in a file with its name or one that imports it."""
    missing = []
    for package in sorted({path.parent.relative_to(PACKAGE) for path in PACKAGE.rglob("__init__.py")} - {Path()}):
        dotted = ".".join(("optimum_neuron", *package.parts, ""))
        around = [file for file in TESTS if file.parts[0] == package.parts[0] and file.name.startswith("test_")]
        named = [file for file in around if package in file.parents or file.name.startswith(f"test_{package.name}")]
        if not named and not any(name.startswith(dotted) for file in around for name in imported_by(file)):
            missing.append(str(package))
    assert missing == list(TESTED_BY) and all(Path(file) in TESTS for file in TESTED_BY.values())


def test_files_with_tests_are_named_so_and_helpers_are_listed():
    listed = set(re.findall(r"`([\w/]+(?:\.py|/))`", (ROOT / "tests" / "README.md").read_text(encoding="utf-8")))
    wrong = []
    for file, tree in TESTS.items():
        has_tests = any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            for node in ast.walk(tree)
        )
        is_listed = str(file) in listed or any(f"{folder}/" in listed for folder in file.parents)
        if has_tests != file.name.startswith("test_") or not (has_tests or file.name == "conftest.py" or is_listed):
            wrong.append(str(file))
    assert wrong == []


OURS = {name for name in errors.__all__ if name.endswith("Error")}


def caught(node: ast.Call) -> set[str]:
    """Names of the classes that `pytest.raises` or `raises` expects."""
    kinds = node.args[0].elts if isinstance(node.args[0], ast.Tuple) else node.args[:1]
    return {kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "") for kind in kinds}


def texts_of_errors(tree: ast.AST, variables: set[str]) -> Iterator[tuple[ast.Compare, str]]:
    """Comparisons `"text" in error`, where the error is a variable, as a string or by its message or hint."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            target = ast.unparse(node.comparators[0])
            if any(re.fullmatch(rf"str\({name}\.value\)|{name}\.value\.(message|hint)", target) for name in variables):
                yield node, ast.unparse(node.left)


def sentences_matched() -> Iterator[str]:
    """Tests that match sentences of errors of this package: the class and the details are its interface.

    Errors of other libraries have only their text. A name or a value may be looked for in a message, as it is there for
    people: words are sentences from two on.
    """
    for file, tree in TESTS.items():
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            variables = set()
            for item in (item for node in ast.walk(function) if isinstance(node, ast.With) for item in node.items):
                call = item.context_expr
                if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("raises") or not call.args:
                    continue
                ours = caught(call) & OURS or not all(name[:1].isupper() for name in caught(call))
                if ours and any(keyword.arg == "match" for keyword in call.keywords):
                    yield f"{file}:{call.lineno}: match="
                if ours and isinstance(item.optional_vars, ast.Name):
                    variables.add(item.optional_vars.id)
            for node, text in texts_of_errors(function, variables) if variables else ():
                if re.search(r"[a-z]{2} [a-z]{2}", text):
                    yield f"{file}:{node.lineno}: {text}"


def test_errors_are_matched_by_class_and_details():
    assert list(sentences_matched()) == []
