"""`optimum-cli neuron consolidate CHECKPOINT`: the weights of a checkpoint become one safetensors file.

The work is `optimum_neuron.distributed.consolidate`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import size
from .arguments import options_from
from .output import Out
from .parser import Command


class ConsolidateCommand(Command):
    COMMAND = CommandInfo(name="consolidate", help="Join weights that a training run saved in shards.")
    DESCRIPTION = """Merge the sharded weights of a training run into one file for from_pretrained.

Unsharded weights are copied.

  optimum-cli neuron consolidate out/checkpoint-100 my_model --config base_model
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("checkpoint", metavar="CHECKPOINT", help="folder of a checkpoint, or of a run")
        parser.add_argument(
            "output", metavar="OUTPUT", nargs="?", help="output folder (default: the checkpoint itself)"
        )
        parser.add_argument("-f", "--format", choices=["safetensors"], help="format of the weights")
        parser.add_argument("--config", metavar="DIR", help="folder with config.json, if the checkpoint has none")

    def execute(self, out: Out) -> None:
        from ..distributed import consolidate

        written = consolidate(self.args.checkpoint, **options_from(self.args, "output", "config"))
        out.result(dataclasses.asdict(written), human=show_file, brief=written.path)


def show_file(out: Out, written: Mapping[str, Any]) -> None:
    """Render the written files, and what is missing to load them."""
    tensors = f"{written['num_tensors']} tensors, {size(written['size_bytes'])}"
    out.text(f"{written['path']}: {tensors}, from {written['source']}")
    if not written["loadable"]:
        out.text("no config.json is beside it: copy the model's, or pass --config")
