"""`optimum-cli neuron estimate-training MODEL`: speed, cost and memory of training, simulated."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..errors import ConfigError
from ..pages import TRAINING_QUANTITIES
from .arguments import options_from, positive_int
from .estimate import show_quantities
from .output import Out, show_memory
from .pages import add_html, output_files, show_files, write_page
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


class EstimateTrainingCommand(Command):
    COMMAND = CommandInfo(name="estimate-training", help="Estimate speed, cost and memory of training (simulated).")
    DESCRIPTION = """Estimate speed, cost and memory of training, and the smallest layout. Simulated.

  optimum-cli neuron estimate-training MODEL --instance trn1.32xlarge --num_instances 4
  optimum-cli neuron estimate-training MODEL --config hf_llama3_8B_config.yaml
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", nargs="?", help="folder or id on the Hub")
        parser.add_argument(
            "--config", metavar="FILE", help="YAML of NxD Training, or options of neuronx_distributed_config"
        )
        parser.add_argument("--instance", metavar="NAME", help="instance or family (default: trn1.32xlarge)")
        for name, meaning in _SIZES.items():
            parser.add_argument(f"--{name}", type=positive_int, metavar="N", help=meaning)
        for name, meaning in _SWITCHED_OFF.items():
            parser.add_argument(f"--no_{name}", dest=name, action="store_false", default=None, help=meaning)
        parser.add_argument(
            "--price", type=float, metavar="USD", help="price of one instance for an hour (default: on demand)"
        )
        add_html(parser)
        parser.add_argument("--trust-remote-code", action="store_true", help="run the model's own Python code")

    def execute(self, out: Out) -> None:
        from ..pages import training_page
        from ..simulator import estimate_training

        files = output_files(self.args)
        options = options_from(self.args, "instance", *_SIZES, "price", "trust_remote_code")
        switched_off = {name: False for name in _SWITCHED_OFF if getattr(self.args, name) is False}
        model, read, notes = _read(self.args.model, self.args.config)
        data = estimate_training(model, **{**read, **options, **switched_off}).to_dict()
        data["notes"] += notes
        data = write_page(files, data, training_page)
        out.result(data, human=show_training, brief=f"{data['tokens_per_s']['value']:.4g} tokens/s (simulated)")


def _read(model: str | None, file: str | None) -> tuple[Any, dict[str, Any], list[str]]:
    """The model, options of a file, and what to say about them."""
    if file is None:
        if model is None:
            raise ConfigError("There is no model.", hint="Pass MODEL, or --config FILE which names one.")
        return model, {}, []
    from ..nxd_training import estimate_options, model_config, read_given

    given = read_given(file)
    config = model_config(given, model)
    options, unused = estimate_options(given)
    return config, options, [f"without effect on an estimate: {', '.join(unused)}"] if unused else []


def show_training(out: Out, data: Mapping[str, Any]) -> None:
    where = f"{data['num_instances']} x {data['instance']['value']}"
    out.text(f"training {data['model']} on {where}: simulated")
    out.text()
    show_quantities(out, data, TRAINING_QUANTITIES)
    out.text()
    out.text(f"layout: {data['layout']['value']} ({data['layout']['reason']})")
    show_memory(out, data["hbm_bytes"])
    out.remarks(data)
    show_files(out, data)
