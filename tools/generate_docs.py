"""Write the generated parts of the documentation: commands, flags, options, environment variables, errors.

    python tools/generate_docs.py

replaces the text between `<!-- generated: NAME -->` and `<!-- /generated -->` in every page of `docs/`. The parts come
from the code: parsers, `variables.TABLE`, `errors`, `hardware_tables.py`. `tests/docs/test_docs.py` compares the pages
with it.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
import runpy
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from optimum_neuron import errors, upstream
from optimum_neuron.base.variables import TABLE
from optimum_neuron.checkpoints import Checkpoint, Dataset, entries
from optimum_neuron.cli import next_command
from optimum_neuron.kinds import KINDS
from optimum_neuron.models import families
from optimum_neuron.nki import Rule
from optimum_neuron.options.configuration import CompileConfig, NeuronConfig
from optimum_neuron.pipelines import ALIASES, NOT_SERVED, PIPELINES
from optimum_neuron.sources import TASKS, kinds_of_task, support_rows

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
_MARKED = re.compile(r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- /generated -->)", re.DOTALL)


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of our commands by their words after `optimum-cli`, sorted."""
    from optimum.commands.base import RootOptimumCLICommand
    from optimum.commands.export.base import ExportCommand
    from optimum.commands.optimum_cli import register_optimum_cli_subcommand

    from optimum_neuron.cli import NeuronCommand, NeuronExportCommand

    root = RootOptimumCLICommand("Optimum CLI tool", usage="optimum-cli")
    export = ExportCommand(root.subparsers)
    register_optimum_cli_subcommand(NeuronExportCommand, parent_command=export)
    found = {"export neuron": export.registered_subcommands[0].parser.declared()}

    def walk(command, words: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
        words = (*words, command.COMMAND.name)
        if not command.registered_subcommands:
            found[" ".join(words)] = command.parser.declared()
        for child in command.registered_subcommands:
            walk(child, words)

    walk(NeuronCommand(root.subparsers), ())
    return dict(sorted(found.items()))


def commands() -> str:
    """Every command with the first sentence of its help."""
    rows = []
    for name, parser in command_parsers().items():
        assert parser.description is not None, "a test wants a description of every command"
        rows.append((f"`optimum-cli {name}`", parser.description.strip().split("\n\n")[0].replace("\n", " ")))
    return table(("command", "what it does"), rows)


def export_flags() -> str:
    """Every argument of `optimum-cli export neuron`, group by group."""
    parts = []
    for group in command_parsers()["export neuron"]._action_groups:
        rows = [(_spelling(action), action.help) for action in group._group_actions if action.dest != "help"]
        if rows:
            parts.append(f"**{group.title}**\n\n" + table(("argument", "meaning"), rows))
    return "\n".join(parts)


def config_fields() -> str:
    """Every field of `NeuronConfig` with its default and docstring."""
    return table(("keyword", "default", "meaning"), _field_rows(NeuronConfig))


def kind_fields(name: str) -> str:
    """The fields of a kind of models in addition to those of every compile."""
    config_class = KINDS[name].config_class
    rows = [row for row in _field_rows(config_class) if row[0].strip("`") not in CompileConfig.field_names()]
    return table(("keyword", "default", "meaning"), rows)


def _field_rows(config_class: type[CompileConfig]) -> list[tuple[str, str, str]]:
    """Fields of a configuration and its bases; one that is declared again keeps its place and has its last default."""
    rows: dict[str, tuple[str, str, str]] = {}
    for owner in reversed([kind for kind in config_class.__mro__ if dataclasses.is_dataclass(kind)]):
        defaults = {field.name: field.default for field in dataclasses.fields(owner)}
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
        body = tree.body[0].body  # type: ignore[attr-defined]
        for field, text in zip(body, body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and (name := ast.unparse(field.target)) in defaults:
                default = "" if defaults[name] is dataclasses.MISSING else repr(defaults[name])
                rows[name] = (f"`{name}`", f"`{default}`", " ".join(ast.literal_eval(text.value).split()))
    return list(rows.values())


def support() -> str:
    """Architectures with the tasks for which they were compared with transformers, as `neuron models` prints them."""
    rows = [
        (f"`{row['architecture']}`", ", ".join(row["compared"]), ", ".join(row["refused"])) for row in support_rows()
    ]
    return table(("architecture", "compared with transformers", "refused"), rows)


def task_classes() -> str:
    """Every task of encoder-style models with its class and pipeline."""
    rows = [
        (f"`{task.name}`", f"`{task.model_class}`", f"`{task.pipeline}`" if task.pipeline else "")
        for task in TASKS.values()
        if task.kind == "encoder"
    ]
    return table(("task", "class", "pipeline"), rows)


def pipeline_names() -> str:
    """Every pipeline with the class of its models, or why it cannot be built."""
    others: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        others.setdefault(name, []).append(f"`{alias}`")
    rows = []
    for name, task in PIPELINES.items():
        classes = ", ".join(f"`{row.model_class}`" for row in kinds_of_task(task.name))
        rows.append((", ".join([f"`{name}`", *others.get(name, [])]), classes))
    for name, (reason, hint) in NOT_SERVED.items():
        rows.append((", ".join([f"`{name}`", *others.get(name, [])]), f"not supported: {reason}. {hint}"))
    return table(("pipeline", "models"), rows)


def catalogue() -> str:
    """Everything that `neuron fetch` knows, as `neuron fetch --list` prints it."""
    rows = [
        (
            ", ".join(f"`{name}`" for name in (*entry.aliases, entry.name)),
            f"`{entry.architecture}`"
            if isinstance(entry, Checkpoint)
            else f"{entry.num_rows:,} rows: " + fields(entry),
            entry.origin,
            entry.license,
            f"{entry.download_bytes / 1e6:.1f} MB",
        )
        for entry in entries()
    ]
    return table(("name", "what it is", "origin", "license", "download"), rows)


def fields(data_set: Dataset) -> str:
    """The keys of a data set's rows."""
    return ", ".join(f"`{field}`" for field in data_set.fields)


def variables() -> str:
    """Every environment variable that is read."""
    return table(("variable", "meaning"), [(f"`{name}`", row.meaning) for name, row in TABLE.items() if row.honored])


def unused_variables() -> str:
    """Every environment variable that is known and decides nothing here."""
    rows = [(f"`{name}`", row.meaning) for name, row in TABLE.items() if not row.honored]
    return table(("variable", "why it has no effect"), rows)


def error_tree() -> str:
    """The tree from the docstring of `errors`."""
    assert errors.__doc__ is not None
    tree = "\n".join(line for line in errors.__doc__.splitlines() if line.startswith("    "))
    return f"```text\n{textwrap.dedent(tree)}\n```\n"


def error_table() -> str:
    """Every exception with its meaning and the command that helps."""
    rows = []
    for name in sorted(errors.__all__):
        kind = getattr(errors, name)
        if inspect.isclass(kind):
            summary = (inspect.getdoc(kind) or "").partition("\n\n")[0]
            rows.append((f"`{name}`", summary, f"`{next_command(kind(''), 'COMMAND')}`"))
    return table(("error", "raised when", "the command line then names"), rows)


def import_order() -> str:
    """The rows of packages that `tests/test_house.py` holds, highest first."""
    order = runpy.run_path(str(ROOT / "tests" / "test_house.py"))["ORDER"]
    return "```text\n" + "\n".join("  ".join(row) for row in order) + "\n```\n"


def upstream_rows() -> str:
    """Every private part of other libraries, by module of `upstream/`."""
    parts = []
    for info in pkgutil.iter_modules(upstream.__path__):
        module = importlib.import_module(f"{upstream.__name__}.{info.name}")
        if hasattr(module, "ROWS"):
            rows = [(f"`{row.target}`", row.KIND, row.why) for row in module.ROWS]
            parts.append(f"### upstream/{info.name}.py\n\n{table(('name', 'how it is used', 'why'), rows)}")
    return "\n".join(parts)


def kernel_rules() -> str:
    """The rules that kernels keep, by kind."""
    named = functools.partial(re.sub, r"\{(?:of\.)?(.*?)(?:!r|:list)?\}", r"`\1`")
    texts = [(named(rule.message), named(rule.remedy)) for rule in Rule]
    rows = [(f"`{rule.kind}`", *text) for rule, text in zip(Rule, texts, strict=True)]
    return table(("rule", "what an error says", "what to do"), rows)


def version_ranges() -> str:
    """The versions of libraries that the installation accepts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (line for lines in project["optional-dependencies"].values() for line in lines)
    requirements = {Requirement(line).name: line for line in (*extras, *project["dependencies"])}
    libraries = ("torch", "transformers", "accelerate", "diffusers", "trl", "peft", "safetensors")
    rows = [(name, f"`{Requirement(requirements[name]).specifier}`") for name in libraries]
    return table(("library", "accepted versions"), rows)


def family_table() -> str:
    """Every decoder family with its model types and what its file says of it."""
    rows = [
        (f"[`{name}`](../optimum_neuron/models/{name}.py)", ", ".join(one.MODEL_TYPES), inspect.getdoc(one))
        for name, one in families().items()
    ]
    return table(("family", "`model_type`", "what it is"), rows)


def family_pages() -> str:
    """What was compared, how cores share the weights, and what is left to transformers' code, family by family."""
    from optimum_neuron.models.common import PLAN
    from tests.models.test_families import FAMILIES

    common = table(("module", "style"), [(f"`{path}`", style) for path, style in PLAN.items()])
    parts = [f"The plan that families share (styles: `optimum_neuron/models/parallel.py`):\n\n{common}"]
    for name, one in families().items():
        own = [f"`{path}` {style}" for path, style in one.PLAN.items() if PLAN.get(path) != style]
        options = ", ".join(f"`{option}`" for option in sorted(_options_read(one.uncovered)))
        lines = [
            f"- Compared: {'; '.join(FAMILIES[name])}.",
            f"- Cores: the shared plan{', and ' + ', '.join(own) if own else ''}.",
            f"- Some values of these options run through transformers' code: {options}."
            if options
            else "- Every option is covered.",
        ]
        parts.append(f"### {name}\n\n{inspect.getdoc(one)}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _options_read(function: Callable[..., Any]) -> set[str]:
    """Return the fields of `config` that a function reads, itself or by functions of `models.common` that it calls."""
    from optimum_neuron.models import common

    read = set[str]()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "config":
            read.add(node.attr)
        called = ast.unparse(node.func).removeprefix("common.") if isinstance(node, ast.Call) else ""
        if called and inspect.isfunction(found := getattr(common, called, None)) and found is not function:
            read |= _options_read(found)
    return read


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; bars inside cells are escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _spelling(action: argparse.Action) -> str:
    """Spelling of an argument: names, then its value or choices."""
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.nargs == 0:
        return names
    values = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.metavar
    return f"{names} `{values or action.dest.upper()}`"


PARTS: dict[str, Callable[[], str]] = {
    "catalogue": catalogue,
    "commands": commands,
    "config-fields": config_fields,
    "encoder-fields": functools.partial(kind_fields, "encoder"),
    "text-to-text-fields": functools.partial(kind_fields, "seq2seq"),
    "image-text-to-text-fields": functools.partial(kind_fields, "image_text"),
    "error-table": error_table,
    "error-tree": error_tree,
    "export-flags": export_flags,
    "families": family_table,
    "family-pages": family_pages,
    "import-order": import_order,
    "pipelines": pipeline_names,
    "kernel-rules": kernel_rules,
    "speech-fields": functools.partial(kind_fields, "speech"),
    "support": support,
    "task-classes": task_classes,
    "upstream": upstream_rows,
    "unused-variables": unused_variables,
    "variables": variables,
    "version-ranges": version_ranges,
    **runpy.run_path(str(ROOT / "tools" / "hardware_tables.py"))["TABLES"],
}
"""Name in a marker to the function that makes the part."""


def fill(document: str) -> str:
    """Return a page with its generated parts replaced; an unknown marker is a KeyError."""
    return _MARKED.sub(lambda match: f"{match[1]}{PARTS[match['name']]()}{match[3]}", document)


def main() -> None:
    """Rewrite every page whose generated parts have changed, and name it."""
    for page in sorted(DOCS.glob("*.md")):
        old = page.read_text(encoding="utf-8")
        new = fill(old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(page.name)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # the cases of families are in the tests
    main()
