"""`optimum-cli neuron train --config FILE`: train by a YAML file of NxD Training."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base import env
from .output import Out
from .parser import Command


class TrainCommand(Command):
    COMMAND = CommandInfo(name="train", help="Train a model by a YAML file of NxD Training, on simulated cores.")
    DESCRIPTION = """Train a model by a YAML file of NxD Training with `model_source: hf`, on simulated cores.

  optimum-cli neuron train --config hf_llama3_8B_config.yaml
  torchrun --nproc_per_node 2 --no-python optimum-cli neuron train --config hf_llama3_8B_config.yaml
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--config", metavar="FILE", required=True, help="YAML file of NxD Training")

    def execute(self, out: Out) -> None:
        from ..nxd_training import train

        data = train(self.args.config)
        if env.rank() in (None, 0):  # one answer for all processes
            out.result(data, human=_show, brief=data["output_dir"])


def _show(out: Out, data: Mapping[str, Any]) -> None:
    out.table(data["losses"])
    out.text()
    out.text(f"checkpoints: {data['output_dir']}")
    if data["without_effect"]:
        out.text(f"without effect here: {', '.join(data['without_effect'])}")
