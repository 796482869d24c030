"""`optimum-cli neuron estimate-training MODEL`: speed, cost and memory of training, simulated."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .arguments import options_from, positive_int
from .estimate import shown
from .output import Out, size
from .parser import Command

_SIZES = {
    "num_instances": "instances that take part (default: 1)",
    "sequence_length": "tokens of a sequence (default: the model's own, at most 4096; pictures have their patches)",
    "batch_size": "sequences of a step, of all copies together (default: 256)",
    "micro_batch_size": "sequences of one forward and backward (default: 1)",
    "tensor_parallel_size": "cores that share a layer (default: the smallest layout that fits)",
    "pipeline_parallel_size": "stages (default: as above)",
}
_SPEEDS = {
    "sequences_per_s": "sequences per second",
    "tokens_per_s": "tokens per second",
    "step_ms": "time of a step",
    "usd_per_1m_tokens": "price per million tokens",
    "mfu": "share of the peak (MFU)",
}


class EstimateTrainingCommand(Command):
    """Shows speed, cost, and the memory of a core."""

    COMMAND = CommandInfo(name="estimate-training", help="Estimate speed, cost and memory of training (simulated).")
    DESCRIPTION = """Estimate speed, cost and memory of training, and the smallest layout. Simulated.

  optimum-cli neuron estimate-training MODEL --instance trn1.32xlarge --num_instances 4
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare the model, the sizes and the machine."""
        parser.add_argument("model", metavar="MODEL", help="folder or id on the Hub")
        parser.add_argument("--instance", metavar="NAME", help="instance or family (default: trn1.32xlarge)")
        for name, meaning in _SIZES.items():
            parser.add_argument(f"--{name}", type=positive_int, metavar="N", help=meaning)
        parser.add_argument(
            "--no_zero_1",
            dest="zero_1",
            action="store_false",
            default=None,
            help="every copy keeps all optimizer states",
        )
        parser.add_argument(
            "--no_gradient_checkpointing",
            dest="gradient_checkpointing",
            action="store_false",
            default=None,
            help="keep all activations",
        )
        parser.add_argument(
            "--price", type=float, metavar="USD", help="price of one instance for an hour (default: on demand)"
        )
        parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own Python code")

    def execute(self, out: Out) -> int:
        """Estimate and show."""
        from ..simulator import estimate_training

        options = options_from(self.args, "instance", *_SIZES, "price", "trust_remote_code")
        switched_off = {
            name: False for name in ("zero_1", "gradient_checkpointing") if getattr(self.args, name) is False
        }
        data = estimate_training(self.args.model, **{**options, **switched_off}).to_dict()
        out.result(data, human=show_training, brief=f"{data['tokens_per_s']['value']:.4g} tokens/s (simulated)")
        return 0


def show_training(out: Out, data: Mapping[str, Any]) -> None:
    """Render an estimate for a person."""
    where = f"{data['num_instances']} x {data['instance']['value']}"
    out.text(f"training {data['model']} on {where}: simulated")
    out.text()
    rows = [
        {
            "quantity": title,
            "value": shown(name, data[name]["value"]),
            "80 % interval": f"{shown(name, data[name]['low'])} to {shown(name, data[name]['high'])}",
        }
        for name, title in _SPEEDS.items()
        if name in data
    ]
    out.table(rows, ("quantity", "value", "80 % interval"))
    out.text()
    out.text(f"layout: {data['layout']['value']} ({data['layout']['reason']})")
    available = data["hbm_bytes"]["available"]
    memory = [
        {"category": name, "size": size(value), "of the core": f"{value / available:.1%}"}
        for name, value in data["hbm_bytes"].items()
    ]
    out.table(memory, ("category", "size", "of the core"), title="HBM of one core, simulated")
    for line in data["assumptions"]:
        out.text(f"assumed: {line}")
    for line in data["notes"]:
        out.text(f"note: {line}")
