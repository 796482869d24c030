"""`optimum-cli neuron budget`: fails where a model or a kernel is past a limit of `neuron.toml`.

The work is `optimum_neuron.budgets`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optimum.commands.base import CommandInfo

from ..errors import ConfigError
from ..files.atomic import write_bytes
from .arguments import options_from
from .output import Out
from .parser import Command


class BudgetCommand(Command):
    COMMAND = CommandInfo(name="budget", help="Check limits of models and kernels, for CI (simulated).")
    DESCRIPTION = """Measure models and kernels of neuron.toml, and exit with 1 where one is past a limit. Simulated.

  optimum-cli neuron budget
  optimum-cli neuron budget --record                      # the values that later runs are compared with
  optimum-cli neuron budget --junit budget.xml --markdown comment.md
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "file", metavar="FILE", nargs="?", help="the budget (default: neuron.toml, or pyproject.toml, here)"
        )
        parser.add_argument("--record", action="store_true", help="write the values to neuron.budget.json beside it")
        parser.add_argument("--junit", metavar="FILE", help="write JUnit XML, one test for each limit")
        parser.add_argument("--markdown", metavar="FILE", help="write a table for a comment on a pull request")

    def execute(self, out: Out) -> int:
        from ..budgets import check_budget

        report = check_budget(self.args.file, record=self.args.record)
        made = {"junit": report.to_junit, "markdown": report.to_markdown}
        files = options_from(self.args, *made)
        for name, path in files.items():
            write_bytes(Path(path), made[name]().encode(), error=ConfigError)
        failed = sum(not row.passed for row in report.rows)
        brief = "passed" if report.passed else f"{failed} past their limits"
        out.result({**report.to_dict(), "files": files}, human=show_budget, brief=brief)
        return 0 if report.passed else 1


def show_budget(out: Out, data: Mapping[str, Any]) -> None:
    """Render each limit with its value, and what moved."""
    from ..budgets import shown

    rows = [
        {
            "entry": row["entry"],
            "quantity": row["quantity"],
            **{name: shown(row[name]) for name in ("value", "limit", "recorded")},
            "": row["verdict"] or "ok",
        }
        for row in data["rows"]
    ]
    out.table(rows, title=f"budget of {data['path']}, simulated")
    for name, texts in data["reasons"].items():
        out.text()
        out.text(f"{name} moved:")
        for text in texts:
            out.text(f"  {text}")
    for path in data["files"].values():
        out.text(f"wrote {path}")
