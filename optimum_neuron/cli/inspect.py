"""`optimum-cli neuron inspect DIR`: describe an exported folder, without executing any part of it.

The facts come from `optimum_neuron.exporters.inspect_export`; whatever they are, they are shown: single values first,
then one table per list. Tables with hundreds of rows are left to `--json`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import size
from .output import Out, cell, value_of
from .parser import Command

DETAILS = ("members", "metadata")
"""Facts of the NEFF with a row for every body, operator and weight: in `--json` only."""


class InspectCommand(Command):
    COMMAND = CommandInfo(name="inspect", help="Describe an exported folder.")
    DESCRIPTION = "Describe an exported folder: graphs and their shapes, target, flags, weights, sizes."

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", metavar="DIR", help="folder written by optimum-cli export neuron")

    def execute(self, out: Out) -> None:
        from ..exporters import inspect_export

        out.result(inspect_export(self.args.directory), human=show_export, brief=self.args.directory)


def show_export(out: Out, facts: Mapping[str, Any]) -> None:
    """Render the facts of an exported folder without the details of its NEFF, and name the command that shows them."""
    if "components" in facts:
        _show_pipeline(out, facts)
        return
    neff = facts.get("neff", {})
    left_out = [name for name in DETAILS if name in neff]
    if not left_out:
        show_facts(out, facts)
        return
    show_facts(out, {**facts, "neff": {name: value for name, value in neff.items() if name not in DETAILS}})
    out.hint(
        f"optimum-cli neuron inspect {shlex.quote(str(facts['folder']))} --json  # adds neff {', '.join(left_out)}"
    )


def _show_pipeline(out: Out, facts: Mapping[str, Any]) -> None:
    """Render a pipeline: a row and a table of graphs for each of its programs."""
    parts = facts["components"]
    single = {name: value for name, value in facts.items() if name != "components"}
    show_facts(out, single)
    rows = [
        {
            "component": name,
            "graphs": len(part["graphs"]),
            "cores": value_of(part["num_cores"]),
            "tensors": part["weights"]["tensors"],
            "weights": size(part["hbm_bytes"]["weights"]),
            "HBM of a core": size(part["hbm_bytes"]["total"]),
        }
        for name, part in parts.items()
    ]
    out.text()
    out.table(rows, title="components")
    for name, part in parts.items():
        out.text()
        out.table(part["graphs"], title=f"{name}.graphs")
    first = shlex.quote(f"{facts['folder']}/{next(iter(parts))}")
    out.hint(f"optimum-cli neuron inspect {first}  # everything about one of them")


def show_facts(out: Out, facts: Mapping[str, Any], title: str = "") -> None:
    """Render nested facts: a table of single values, then every list and inner dictionary under its name.

    Args:
        facts: Plain data; keys that end in `_bytes`, and all that is below one, are shown with a unit, and
            `Choice.to_dict()` values with a reason.
    """
    single, nested = [], {}
    suffix = "_bytes" if title.endswith("_bytes") else ""
    for name, value in facts.items():
        is_choice = isinstance(value, Mapping) and "value" in value and "reason" in value
        if not is_choice and (isinstance(value, Mapping) or _is_rows(value)):
            nested[name] = value
        else:
            reason = value["reason"] if is_choice else None
            single.append({"what": name, "value": _shown(name + suffix, value_of(value)), "reason": reason})
    if single:
        out.table(single, title=title)
    for name, value in nested.items():
        inner = f"{title}.{name}" if title else name
        out.text()
        if isinstance(value, Mapping):
            show_facts(out, value, inner)
        else:
            rows = [{key: _shown(key, item) for key, item in row.items()} for row in value]
            out.table(rows, title=inner)


def _is_rows(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, Mapping) for item in value)


def _shown(name: str, value: object) -> Any:
    if isinstance(value, (list, tuple, Mapping)) and not value:
        return "none"
    return size(value) if name.endswith("_bytes") and isinstance(value, (int, float)) else cell(value)
