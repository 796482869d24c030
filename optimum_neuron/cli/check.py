"""`optimum-cli neuron check MODEL`: report what compiling a model would take, without weights and without compiling.

The work is `optimum_neuron.check_model`. Exit code 0 unless a condition of `--fail-on` is met.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import listed
from ..checking import FAIL_CONDITIONS
from ..errors import ConfigError
from .arguments import add_graph_arguments, add_model, names, options_from
from .output import Out, choice_rows, memory_title, show_memory
from .pages import add_html, output_files, show_files, write_page
from .parser import Command

_CHOICES = {name: name for name in ("tier", "task", "family", "target", "instance", "num_cores")}
_LEGEND = (
    "FLOPs of one run of each graph above: 2 for each multiply-add of products, attention and convolutions, "
    "1 for each element of other arithmetic, none where data is only moved."
)
_MAX_PATHS = 3


class CheckCommand(Command):
    COMMAND = CommandInfo(name="check", help="Check a model before compiling it.")
    DESCRIPTION = """Check a model before compiling it: effort, operators, memory. Needs no weights, compiles nothing.

  optimum-cli neuron check smollm2 --sequence_length 512
  optimum-cli neuron check ./my_model --instance_type trn2 --fail-on host,unsupported
  optimum-cli neuron check ./my_model --from inf1 --to inf2
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_model(parser)
        add_graph_arguments(parser)
        parser.add_argument(
            "--all_graphs",
            action="store_true",
            help="capture the graphs of every bucket, not of the smallest and the largest only",
        )
        move = parser.add_argument_group("move to another instance")
        move.add_argument("--from", dest="source", metavar="NAME", help="instance or family that the model runs on")
        move.add_argument("--to", dest="target", metavar="NAME", help="instance or family that it moves to")
        add_html(parser)
        verdict = parser.add_argument_group("verdict")
        verdict.add_argument(
            "--allow_host_ops",
            type=names,
            metavar="OP,OP",
            help="operators that may run on the host if the target refuses them, for example aten::sort",
        )
        verdict.add_argument(
            "--fail-on",
            type=names,
            metavar="WHAT,WHAT",
            help=f"exit with 1 if any of these is found: {', '.join(FAIL_CONDITIONS)}",
        )

    def execute(self, out: Out) -> int:
        from ..checking import check_model, require_conditions
        from ..pages import check_page

        files = output_files(self.args)
        if self.args.source or self.args.target:
            return self._move(out, files)
        conditions = require_conditions(self.args.fail_on or ())
        report = check_model(self.args.model, **options_from(self.args, without=("model", "fail_on", "html")))
        met = report.failures(conditions)
        data = report.to_dict() | {"failed_on": list(met)}
        data = write_page(files, data, check_page)
        out.result(data, human=show_check, brief=str(report.tier))
        hint_next(out, data)
        if met:
            out.warning(f"conditions of --fail-on are met: {', '.join(met)}")
        return 1 if met else 0

    def _move(self, out: Out, files: Mapping[str, Path]) -> int:
        """Report what changes between two instances."""
        from ..checking import check_migration
        from ..pages import move_page

        names = {"--from": self.args.source, "--to": self.args.target}
        if missing := [flag for flag, name in names.items() if not name]:
            message = f"{missing[0]} is missing: a move has two instances."
            raise ConfigError(message, hint="Pass --from and --to.", option=missing[0])
        ignored = [name for name in ("instance_type", "fail_on", "allow_host_ops") if getattr(self.args, name)]
        if ignored:
            flags = ", ".join(f"--{name}" for name in ignored)
            raise ConfigError(f"{flags} has no effect with --from and --to.", hint="Remove it.", options=ignored)
        options = options_from(self.args, without=("model", "source", "target", "html"))
        report = check_migration(self.args.model, self.args.source, self.args.target, **options)
        data = write_page(files, report.to_dict(), move_page)
        out.result(data, human=show_move, brief=str(len(report.changes)))
        return 0


def show_move(out: Out, data: Mapping[str, Any]) -> None:
    """Render a move: what runs elsewhere, the facts of both instances, and what has to be done."""
    before, after = data["from"], data["to"]
    out.text(f"{data['model']} from {before} to {after}, simulated: no weights read, nothing compiled")
    if data["refused_because"]:
        out.text(data["refused_because"])
    rows = [
        {
            "operator": row["op"],
            f"on {before}": row["before"],
            f"on {after}": row["after"],
            "calls": row["num_calls"],
            "reason": row["reason"],
        }
        for row in data["operators"]
        if row["before"] != row["after"] and not data["refused_because"]
    ]
    out.text()
    if rows:
        out.table(rows, title="operators that run elsewhere")
    elif not data["refused_because"]:
        out.text("Every operator runs in the same place on both.")
    out.text()
    out.table([{"subject": name, before: row["from"], after: row["to"]} for name, row in data["facts"].items()])
    out.text()
    for number, change in enumerate(data["changes"], start=1):
        out.text(f"{number}. {change}")
    if not data["changes"]:
        out.text("Nothing has to change: a compiled model runs on both.")
    show_files(out, data)


def show_check(out: Out, data: Mapping[str, Any]) -> None:
    """Render a report as text: automatic choices first, then tables, then every obstacle with its remedy."""
    tier = data["tier"]
    out.text(f"checked {data['model']}, simulated: no weights read, nothing compiled")
    out.text()
    reason = tier["reasons"][0] if tier["value"] == 1 else f"{len(tier['reasons'])} obstacles, see below"
    verdict = {"tier": {"value": f"{tier['value']}, {tier['name']}", "reason": reason}}
    out.table(choice_rows({**data, **verdict}, _CHOICES, column="choice"))
    if data["graphs"]:
        _show_graphs(out, data)
    _show_obstacles(out, data)
    out.text()
    show_memory(out, data["memory"]["hbm_bytes"], percent, title=memory_title(data))
    out.text(data["memory"]["reason"])
    show_files(out, data)


def hint_next(out: Out, data: Mapping[str, Any]) -> None:
    """Name the command that follows from a report: the export, or the check with operators allowed on the host."""
    model = shlex.quote(data["model"])
    refused = [row for row in data["operators"] if row["verdict"] == "unsupported"]
    if data["tier"]["value"] == 1:
        out.hint(f"optimum-cli export neuron -m {model} OUTPUT ...  # with the same options")
    elif refused and all(row["host_name"] for row in refused):
        allowed = ",".join(dict.fromkeys(row["host_name"] for row in refused))
        out.hint(f"optimum-cli neuron check {model} --allow_host_ops {allowed} ...  # what the host would have to do")


def _show_graphs(out: Out, data: Mapping[str, Any]) -> None:
    graphs = [
        {
            "graph": row["name"],
            "calls": row["num_calls"],
            "FLOPs": row["flops"],
            "placed": percent(row["placed_share"]),
        }
        for row in data["graphs"]
    ]
    if data["placed_share"] is not None:
        total = {"graph": "all", "calls": sum(row["calls"] for row in graphs)}
        graphs.append({**total, "FLOPs": sum(row["FLOPs"] for row in graphs), "placed": percent(data["placed_share"])})
    out.text()
    out.table(graphs, title="one run of each graph")
    out.text(_LEGEND)
    for option, buckets in data["buckets_between"].items():
        out.text(f"not captured: {option} {', '.join(map(str, buckets))}, between the smallest and the largest")
    if data["buckets_between"]:
        out.text("Their operators are the same with sizes between; --all_graphs captures every graph.")
    operators = [
        {
            "operator": row["op"],
            "calls": row["count"],
            "FLOPs": row["flops"],
            "share": "unknown" if row["flops_counted"] == "unknown" else percent(row["flops_share"]),
            "verdict": row["verdict"],
            "reason": row["reason"],
            "modules": listed([path or "top level" for path in row["module_paths"]], _MAX_PATHS),
        }
        for row in data["operators"]
    ]
    out.text()
    out.table(operators, title="operators")


def _show_obstacles(out: Out, data: Mapping[str, Any]) -> None:
    for failure in data["capture_failures"]:
        out.text()
        out.text(f"cannot be captured: {', '.join(failure['graphs']) or 'the model'}")
        out.text(f"  where: {failure['source_line'] or 'its configuration'}")
        out.text(f"  {failure['reason']}")
    for row in data["operators"]:
        if row["verdict"] in ("unsupported", "host"):
            where = [*(path or "top level" for path in row["module_paths"]), *row["source_lines"]]
            out.text()
            out.text(f"{row['code'] or ''} {row['op']}, {row['count']} calls: {row['verdict']}".strip())
            out.text(f"  where: {', '.join(where)}")
            out.text(f"  why: {row['reason']}")
            if row["remedy"]:
                out.text(f"  do: {row['remedy']}")


def percent(share: float) -> str:
    """A share below 100 % is never shown as 100 %, and one above 0 % never as 0 %."""
    if 0 < share < 0.0005:
        return "<0.1 %"
    return ">99.9 %" if 0.9995 <= share < 1 else f"{share:.1%}".replace("%", " %")
