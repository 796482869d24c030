"""`optimum-cli neuron models`: which architectures were compared with transformers, for which tasks.

The list is `sources/support.json`, which the tests write and check; nothing in it is written by hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .output import Out
from .parser import Command


class ModelsCommand(Command):
    COMMAND = CommandInfo(name="models", help="List architectures and tasks that were compared with transformers.")
    DESCRIPTION = """List the architectures that were compared with transformers in float32, with their tasks. Others
take the generic path, and an export says so.

  optimum-cli neuron models
  optimum-cli neuron models --task fill-mask
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--task", help="show the architectures of one task")

    def execute(self, out: Out) -> None:
        from ..sources import support_rows

        rows = support_rows(self.args.task)
        out.result({"models": rows}, human=_show, brief="\n".join(row["architecture"] for row in rows))
        out.hint("optimum-cli neuron check MODEL")


def _show(out: Out, data: Mapping[str, Any]) -> None:
    rows = [{key: ", ".join(row[key]) if key != "architecture" else row[key] for key in row} for row in data["models"]]
    shown = ["architecture", "compared", *(["refused"] if any(row["refused"] for row in rows) else [])]
    out.table(rows, tuple(shown))
