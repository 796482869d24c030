"""`optimum-cli neuron studio`: a local page to estimate models, compare configurations, and browse what is compiled.

The work is `optimum_neuron.studio`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from optimum.commands.base import CommandInfo

from .arguments import options_from, whole_number
from .output import Out
from .parser import Command


class StudioCommand(Command):
    COMMAND = CommandInfo(name="studio", help="Open a local page to estimate and compare models (simulated).")
    DESCRIPTION = """Serve a page, for this machine only, to estimate models and compare configurations. Simulated.

  optimum-cli neuron studio
  optimum-cli neuron studio --port 9000 --folder exports
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--port", type=whole_number, metavar="N", help="port (default: 8765; 0: any free one)")
        parser.add_argument(
            "--folder",
            type=Path,
            metavar="DIR",
            help="folder whose exports and profiles are listed (default: the current one)",
        )

    def execute(self, out: Out) -> None:
        from ..studio import serve_studio

        def listening(url: str) -> None:
            data = {"url": url, "simulated": True}
            out.result(data, human=lambda out, data: out.text(f"studio at {data['url']} (simulated)"), brief=url)
            out.flush()

        serve_studio(on_listening=listening, **options_from(self.args, "port", "folder"))
