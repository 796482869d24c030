"""`optimum-cli neuron estimate-training MODEL`: speed, cost and memory of training, simulated."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from .arguments import options_from, positive_int
from .estimate import show_quantities
from .output import Out, show_memory
from .parser import Command

_SIZES = {
    "num_instances": "instances that take part (default: 1)",
    "sequence_length": "tokens of a sequence (default: the model's own, at most 4096; pictures have their patches)",
    "batch_size": "sequences of a step, of all copies together (default: 256)",
    "micro_batch_size": "sequences of one forward and backward (default: 1)",
    "tensor_parallel_size": "cores that share a layer (default: the smallest layout that fits)",
    "pipeline_parallel_size": "stages (default: as above)",
}
_SWITCHED_OFF = {"zero_1": "every copy keeps all optimizer states", "gradient_checkpointing": "keep all activations"}
_SPEEDS = {
    "sequences_per_s": "sequences per second",
    "tokens_per_s": "tokens per second",
    "step_ms": "time of a step",
    "usd_per_1m_tokens": "price per million tokens",
    "mfu": "share of the peak (MFU)",
}


class EstimateTrainingCommand(Command):
    COMMAND = CommandInfo(name="estimate-training", help="Estimate speed, cost and memory of training (simulated).")
    DESCRIPTION = """Estimate speed, cost and memory of training, and the smallest layout. Simulated.

  optimum-cli neuron estimate-training MODEL --instance trn1.32xlarge --num_instances 4
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", help="folder or id on the Hub")
        parser.add_argument("--instance", metavar="NAME", help="instance or family (default: trn1.32xlarge)")
        for name, meaning in _SIZES.items():
            parser.add_argument(f"--{name}", type=positive_int, metavar="N", help=meaning)
        for name, meaning in _SWITCHED_OFF.items():
            parser.add_argument(f"--no_{name}", dest=name, action="store_false", default=None, help=meaning)
        parser.add_argument(
            "--price", type=float, metavar="USD", help="price of one instance for an hour (default: on demand)"
        )
        parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own Python code")

    def execute(self, out: Out) -> None:
        from ..simulator import estimate_training

        options = options_from(self.args, "instance", *_SIZES, "price", "trust_remote_code")
        switched_off = {name: False for name in _SWITCHED_OFF if getattr(self.args, name) is False}
        data = estimate_training(self.args.model, **{**options, **switched_off}).to_dict()
        out.result(data, human=show_training, brief=f"{data['tokens_per_s']['value']:.4g} tokens/s (simulated)")


def show_training(out: Out, data: Mapping[str, Any]) -> None:
    where = f"{data['num_instances']} x {data['instance']['value']}"
    out.text(f"training {data['model']} on {where}: simulated")
    out.text()
    show_quantities(out, data, _SPEEDS)
    out.text()
    out.text(f"layout: {data['layout']['value']} ({data['layout']['reason']})")
    show_memory(out, data["hbm_bytes"])
    out.remarks(data)
