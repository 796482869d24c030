"""`optimum-cli export neuron`: compile a checkpoint for a simulated NeuronCore and save it.

The work is `optimum_neuron.exporters.main_export`, called in this process. This module only collects its
arguments and shows its report.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import size
from .arguments import add_compile_arguments, add_model, add_validation_switch, nonnegative, options_from
from .output import Out, cell, choice_rows, memory_title, value_of
from .parser import Command
from .peer_arguments import add_peer_arguments

_EXAMPLES = """Compile a checkpoint for a simulated NeuronCore, compare it with the reference model, save it.

  optimum-cli export neuron -m smollm2 smollm2_neuron
  optimum-cli export neuron -m ./my_model --batch_size 1 --sequence_length 2048 --instance_type trn2 out
  optimum-cli export neuron -m ./my_classifier --batch_size 8 --sequence_length 64,128,512 out
  optimum-cli export neuron -m smollm2 --adapter out/checkpoint-50 tuned_neuron
  optimum-cli export neuron -m smollm2 --precompile smollm2_neuron
"""
_CHOICES = {
    name: name
    for name in (
        "task",
        "family",
        "attention",
        "windows",
        "quantization",
        "attention_kernel",
        "kv_cache",
        "stored_as",
        "target",
        "num_cores",
        "placed_share",
        "cache",
        "host_code",
        "validated",
        "reference_weights",
    )
}
_VALIDATION = ("output", "max_abs_error", "mean_abs_error", "sqnr_db", "top1_agreement", "tolerance", "ok")
_TIES = ("ties", "tie_margin")
"""Columns of mixtures, where rounding chose between experts."""


class NeuronExportCommand(Command):
    COMMAND = CommandInfo(name="neuron", help="Compile a model for AWS Trainium or Inferentia, simulated.")
    DESCRIPTION = _EXAMPLES

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        add_model(parser, "-m", "--model")
        parser.add_argument("output", metavar="OUTPUT", help="folder to write")
        parser.add_argument(
            "--adapter", help="PEFT adapter that is merged into the model first: folder or name on the Hub"
        )
        parser.add_argument(
            "--allow_missing_weights",
            action=argparse.BooleanOptionalAction,
            help="fill missing weights with random numbers (default: those of an untrained head)",
        )
        add_compile_arguments(parser)
        parser.add_argument("--compiler_workdir", metavar="DIR", help="folder that gets a copy of the NEFF, graph.neff")
        checks = parser.add_argument_group("cache and validation")
        checks.add_argument(
            "--disable_neuron_cache",
            action="store_true",
            help="compile even if the cache has it",
        )
        add_validation_switch(checks)
        checks.add_argument(
            "--precompile",
            action="store_true",
            help="also compile the code that runs the model on this machine, as for a container image or a CI cache",
        )
        checks.add_argument("--atol", type=nonnegative, help="largest absolute difference that validation accepts")
        add_peer_arguments(parser)

    def execute(self, out: Out) -> None:
        from ..exporters import main_export

        options = options_from(self.args, without=("model", "output"))
        if self.args.allow_missing_weights is False:  # a switch that is off is not left out here
            options["allow_missing_weights"] = False
        report = main_export(model_name_or_path=self.args.model, output=self.args.output, **options).to_dict()
        out.result(report, human=show_report, brief=self.args.output)
        hint_next(out, report, self.args.output)


def show_report(out: Out, report: Mapping[str, Any]) -> None:
    size_bytes = report.get("size_bytes")
    simulated = ", simulated" if report.get("simulated") else ""
    written = f" ({size(size_bytes)})" if size_bytes is not None else ""
    out.text(f"exported {report.get('model', '')} to {report.get('output_dir', '')}{written}{simulated}")
    out.text()
    out.table(choice_rows(report, _CHOICES, column="choice"))
    graphs = report.get("graphs") or []
    if graphs:
        out.text()
        out.table(graphs, title="graphs")
    memory = report.get("hbm_bytes")
    if memory:
        out.text()
        rows = [{"category": name, "size": size(value)} for name, value in memory.items()]
        out.table(rows, title=memory_title(report))
        if stages := report.get("stages"):
            out.text()
            out.table([{**stage, "hbm_bytes": size(stage["hbm_bytes"])} for stage in stages], title="stages")
        if not report.get("fits_one_core", True):
            num_cores = value_of(report.get("num_cores")) or 1
            cores = "one core" if num_cores == 1 else f"{num_cores} cores"
            out.warning(f"the model does not fit {cores}: it can be compiled, but not loaded")
    out.text()
    if report.get("validation"):
        has_ties = any(row.get("ties") for row in report["validation"])
        columns = (*_VALIDATION, *_TIES) if has_ties else _VALIDATION
        out.table(report["validation"], columns, title="compared with the reference model")
    else:
        out.text("not compared with the reference model")
    if quality := report.get("quality"):
        out.text()
        out.text(
            f"quantized, on {quality['num_tokens']} tokens of English: the same most likely token as the original for "
            f"{quality['top1_agreement']:.1%}, perplexity {quality['perplexity']:.2f} "
            f"(original {quality['reference_perplexity']:.2f})"
        )
    if report.get("timings_s"):
        out.text()
        out.text("seconds on this host: " + cell(report["timings_s"]))


def hint_next(out: Out, report: Mapping[str, Any], output: str) -> None:
    """Name the command that looks into the folder and, for a text model, the Python lines that talk to it."""
    task = value_of(report.get("task"))
    parts = [f"{output}/{name}" for name in report.get("components", ())]
    out.hint(f"optimum-cli neuron inspect {shlex.quote(parts[-1] if parts else output)}")
    if task in ("text-generation", "text-classification", "token-classification", "feature-extraction"):
        out.hint(f"python: from optimum_neuron import pipeline\nprint(pipeline({task!r}, {output!r})('Hello'))")
