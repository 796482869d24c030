"""`optimum-cli neuron buckets suggest`: the lengths to compile for that pad a data set least.

The work is done by `optimum_neuron.suggest_buckets` on the output of `optimum_neuron.buckets.read_lengths`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .arguments import options_from, positive_int
from .output import Out
from .pages import add_html, output_files, show_files, write_page
from .parser import Command, CommandGroup, subcommands


class BucketsSuggestCommand(Command):
    COMMAND = CommandInfo(name="suggest", help="Suggest the lengths to compile for from real ones.")
    DESCRIPTION = """Suggest the lengths to compile for that pad the sequences of a data set least.

  optimum-cli neuron buckets suggest --dataset prompts.jsonl --column prompt --tokenizer smollm2 --max 4
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--dataset",
            required=True,
            metavar="FILE",
            help="JSON lines, CSV with a header, or text: one number of tokens, or one text, a line",
        )
        parser.add_argument(
            "--tokenizer", metavar="MODEL", help="counts the tokens of texts: folder, name on the Hub or of fetch"
        )
        parser.add_argument("--column", metavar="NAME", help="key or column to read (default: the only one)")
        parser.add_argument(
            "--max", dest="max_buckets", type=positive_int, metavar="N", help="largest number of buckets (default: 6)"
        )
        parser.add_argument(
            "--multiple_of", type=positive_int, metavar="N", help="round every bucket up to a multiple of this"
        )
        add_html(parser)

    def execute(self, out: Out) -> None:
        from ..buckets import read_lengths, suggest_buckets
        from ..pages import buckets_page

        files = output_files(self.args)
        lengths = read_lengths(self.args.dataset, **options_from(self.args, "tokenizer", "column"))
        advice = suggest_buckets(lengths, **options_from(self.args, "max_buckets", "multiple_of")).to_dict()
        advice = write_page(files, advice, buckets_page)
        out.result(advice, human=show_advice, brief=advice["buckets"]["value"])


class BucketsCommand(CommandGroup):
    COMMAND = CommandInfo(name="buckets", help="Choose the lengths to compile for.")
    SUBCOMMANDS = subcommands(BucketsSuggestCommand)


def show_advice(out: Out, advice: Mapping[str, Any]) -> None:
    """Render the best buckets of each number with their waste, then the flags."""
    rows = [
        {
            "number": option["num_buckets"],
            "waste": f"{option['waste']:.1%}",
            "padding tokens": option["padding_tokens"],
            "buckets": option["buckets"],
        }
        for option in advice["options"]
    ]
    real = advice["options"][0]["real_tokens"]
    out.text(f"{advice['num_sequences']} sequences, {real} tokens, the longest {advice['longest']}")
    out.text()
    out.table(rows, title="waste: padding tokens for each real token")
    out.text()
    out.table([{"for": task, "flag": flag} for task, flag in advice["flags"].items()])
    show_files(out, advice)
