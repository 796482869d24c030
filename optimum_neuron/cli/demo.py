"""`optimum-cli neuron demo`: one small model from checkpoint to answer, with the time of each step.

The work is `optimum_neuron.demo.run`. The times are measured on this host; the chip is simulated.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .arguments import options_from, positive_int
from .output import Out, choice_rows, value_of
from .parser import Command

_ROWS = {
    "download_s": "download and convert, s",
    "compile_s": "compile for the target, s",
    "cache": "compile cache",
    "load_s": "load, s",
    "validate_s": "compare with transformers, s",
    "first_token_after_s": "first token after the command, s",
    "tokens_per_s_at_first": "tokens/s of the first answer",
    "full_speed_after_s": "full speed after the command, s",
    "host_code": "host code",
    "time_to_first_token_s": "first token at full speed, s",
    "tokens_per_s": "tokens/s at full speed",
}
"""Keys of the demo's dictionary that the table shows, with their labels."""
_REASON_COLUMNS = 50
"""The table fits 100 columns. `--json` has the whole reasons."""


class DemoCommand(Command):
    COMMAND = CommandInfo(name="demo", help="Compile a small chat model, prompt it, and show the times.")
    DESCRIPTION = """Compile a small chat model, prompt it, and show the time of each step.

  optimum-cli neuron demo --prompt "What is a compiler?" --max_new_tokens 64
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--prompt", metavar="TEXT", help="prompt")
        parser.add_argument("--max_new_tokens", type=positive_int, metavar="N", help="longest answer, in tokens")
        parser.add_argument(
            "--wait-for-host-code",
            action="store_true",
            help="compile all code for this machine before the first answer, as for benchmarks",
        )

    def execute(self, out: Out) -> None:
        from ..demo import run

        options = options_from(self.args)

        def show_answer(answer: str) -> None:
            out.text(answer)
            out.text()
            out.flush()

        report = run(**options, on_answer=show_answer)
        out.result(report, human=show_demo, brief=str(report.get("answer", "")))
        command = "optimum-cli" if shutil.which("optimum-cli") else sys.argv[0]
        out.hint(f"{command} export neuron -m FOLDER_OR_HUB_ID my_model  # your own model")


def show_demo(out: Out, report: Mapping[str, Any]) -> None:
    """Render the table of a demo; the answer was shown when it came."""
    title = f"simulated target {value_of(report.get('target', 'inf2'))}; times are this host's"
    if report.get("download_s") is not None:
        title += ", the later ones without the download"
    rows = choice_rows(report, _ROWS, column="value")
    for row in rows:
        row["reason"] = textwrap.shorten(row["reason"].partition(";")[0], _REASON_COLUMNS, placeholder=" ...")
    out.table(rows, title=title)
