"""`optimum-cli neuron calibrate FILE ...` and `compare-run FILE`: measurements of real instances.

The work is `optimum_neuron.simulator.calibrate` and `compare_run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import number
from ..pages import shown
from .arguments import add_decoder_arguments, add_option_arguments, add_size_arguments, options_from
from .estimate import NOT_OF_GRAPHS
from .output import Out
from .parser import Command

_FILE = "CSV table, result of vllm bench, GenAI-Perf, or LLMPerf, summary of neuron-profile, or neuron-monitor reports"
_OWN = ("files", "file", "model", "output", "graph")


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an estimate, for all runs of a file."""
    from ..simulator import KEYWORDS, EstimateRequest

    parser.add_argument(
        "--graph",
        choices=("prefill", "decode", "device"),
        help="graph that a neuron-profile or neuron-monitor file is of; device: that of a single-pass model",
    )
    add_option_arguments(parser, EstimateRequest)
    add_size_arguments(parser)
    add_decoder_arguments(parser, without=(*KEYWORDS, *NOT_OF_GRAPHS))


class CalibrateCommand(Command):
    COMMAND = CommandInfo(name="calibrate", help="Update the simulator's constants with your own measurements.")
    DESCRIPTION = """Update the constants of estimates with values that you measured on real instances.

  optimum-cli neuron calibrate measured.csv --output mine.json
  optimum-cli neuron calibrate result.json --instance inf2.48xlarge --batch_size 32 --output mine.json
  optimum-cli neuron estimate MODEL --constants mine.json
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("files", metavar="FILE", nargs="+", help=_FILE)
        parser.add_argument("--model", metavar="MODEL", help="model of all runs, where a file has none")
        parser.add_argument("-o", "--output", metavar="JSON", help="write the updated constants (default: print only)")
        _add_options(parser)

    def execute(self, out: Out) -> None:
        from ..simulator import calibrate

        options = options_from(self.args, without=_OWN)
        found = calibrate(self.args.files, model=self.args.model, graph=self.args.graph, **options)
        if self.args.output is not None:
            found.write(self.args.output)
        data = {**found.to_dict(), "output": self.args.output}
        (first, *_) = data["errors"]
        brief = f"{_percent(first['before'])} to {_percent(first['after'])} (simulated)"
        out.result(data, human=show_calibration, brief=brief)
        if self.args.output is None:
            out.hint("optimum-cli neuron calibrate ... --output mine.json  # to estimate with them")
        else:
            out.hint(f"optimum-cli neuron estimate MODEL --constants {self.args.output}")


class CompareRunCommand(Command):
    COMMAND = CommandInfo(name="compare-run", help="Compare a measured run with its estimate, phase by phase.")
    DESCRIPTION = """Compare measured runs with their estimates (simulated), phase by phase.

  optimum-cli neuron compare-run result.json MODEL --instance inf2.48xlarge --tensor_parallel_size 8 --batch_size 32
  optimum-cli neuron compare-run profile.json MODEL --instance trn1.32xlarge --batch_size 1 --graph decode
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help=_FILE)
        parser.add_argument(
            "model", metavar="MODEL", nargs="?", help="folder or id of the model (default: the one that the file names)"
        )
        _add_options(parser)

    def execute(self, out: Out) -> None:
        from ..simulator import compare_run

        options = options_from(self.args, without=_OWN)
        found = compare_run(self.args.file, model=self.args.model, graph=self.args.graph, **options)
        data = {"simulated": True, "file": self.args.file, "runs": [one.to_dict() for one in found]}
        errors = [abs(row["error"]) for run in data["runs"] for row in run["phases"].values()]
        out.result(data, human=show_comparison, brief=f"{_percent(max(errors))} (simulated)")


def show_calibration(out: Out, data: Mapping[str, Any]) -> None:
    """Render a calibration."""
    rows = [
        {
            "value": one["metric"],
            "run": one["origin"],
            "measured": _shown(one, "measured"),
            "before": _shown(one, "before"),
            "after": _shown(one, "after"),
            "left out": _shown(one, "left_out"),
            "80 % interval": f"{_shown(one, 'low')} to {_shown(one, 'high')}",
            "counted": _percent(one["counted"]),
            "": "contradicts" if one["contradicted"] else "",
        }
        for one in data["values"]
    ]
    out.table(rows, title="measured, and predicted before, after, and without its own run (simulated)")
    out.text()
    errors = [
        {
            "value": row["metric"],
            "values": row["values"],
            **{name.replace("_", " "): _percent(row[name]) for name in ("before", "after", "left_out")},
            "in interval": _percent(row["inside"]),
        }
        for row in data["errors"]
    ]
    out.table(errors, title="median errors")
    out.text()
    moves = [
        {
            "constant": row["constant"],
            **{name: number(row[name]) for name in ("before", "after")},
            "factor": f"{row['factor']:.3f}",
            "spread": f"{_percent(row['spread_before'])} to {_percent(row['spread_after'])}",
        }
        for row in data["constants"]
    ]
    out.table(moves, title=f"constants that moved, from version {data['base_version']}")
    for one in data["values"]:
        if one["contradicted"]:
            out.text(f"note: {one['origin']}: {one['metric']} contradicts the others: {one['contradicted']}")
    if data["output"] is not None:
        out.text(f"wrote {data['output']}")


def show_comparison(out: Out, data: Mapping[str, Any]) -> None:
    """Render measured runs beside their predictions."""
    for run in data["runs"]:
        out.text(f"{run['model']} on {run['instance']}, measured in {run['origin']}; predictions are simulated")
        phases = {**run["phases"], **({} if run["hbm_bytes"] is None else {"hbm_bytes": run["hbm_bytes"]})}
        rows = [
            {
                "phase": name,
                "measured": shown(name, row["measured"]),
                "predicted": shown(name, row["predicted"]["value"]),
                "80 % interval": f"{shown(name, row['predicted']['low'])} to {shown(name, row['predicted']['high'])}",
                "error": _percent(row["error"], "+"),
                "limited by": row["predicted"]["limited_by"],
                "": "" if row["inside"] else "outside",
            }
            for name, row in phases.items()
        ]
        rows += [
            {
                "phase": f"engine {name}",
                "measured": shown("engine_ms", row["measured"]),
                "predicted": shown("engine_ms", row["predicted"]),
                "error": "" if row["error"] is None else _percent(row["error"], "+"),
            }
            for name, row in run["engines"].items()
        ]
        out.table(rows)
        out.remarks(run)
        out.text()


def _shown(row: Mapping[str, Any], name: str) -> str:
    return shown(row["metric"], row[name])


def _percent(value: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.1f} %"
