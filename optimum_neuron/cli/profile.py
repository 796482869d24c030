"""`optimum-cli neuron profile DIR|NEFF|SCRIPT`: runs a model and shows its simulated time on the chip.

The work is `optimum_neuron.profiling`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, size, time_span
from ..errors import ConfigError
from ..files.atomic import write_bytes
from .arguments import options_from, positive_int, whole_number
from .output import Out, cell
from .pages import output_files
from .parser import Command

if TYPE_CHECKING:
    from ..profiling import Profile

DEFAULT_TOP = 20
"""Rows of the table that people read."""
_LENGTHS = ("prompt_length", "num_steps")
_NEFFS = (".neff", ".neuron")
"""Endings of compiled programs."""


class ProfileCommand(Command):
    COMMAND = CommandInfo(name="profile", help="Run a model and show its simulated time by operator.")
    DESCRIPTION = """Run a compiled model or a Python script and show its simulated time on the chip by operator.

  optimum-cli neuron profile DIR --perfetto trace.json --html report.html
  optimum-cli neuron profile model.neff
  optimum-cli neuron profile -- SCRIPT.py --an-option-of-the-script
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "target", metavar="DIR_OR_SCRIPT", help="exported folder, NEFF (.neff, .neuron), or Python file"
        )
        parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="arguments of the script")
        run = parser.add_argument_group("run of an exported folder or a NEFF")
        run.add_argument(
            "--prompt_length",
            type=positive_int,
            metavar="N",
            help="tokens of each prompt of a decoder (default: half of the longest sequence)",
        )
        run.add_argument(
            "--num_steps",
            type=whole_number,
            metavar="N",
            help="steps after the prompt, or denoising steps (default: 8)",
        )
        parser.add_argument(
            "--constants", metavar="FILE", help="constants that neuron calibrate wrote (default: those of this version)"
        )
        shown = parser.add_argument_group("what is shown and written")
        shown.add_argument("--top", type=positive_int, metavar="N", help="rows of a table (default: 20; --json: all)")
        shown.add_argument("--perfetto", metavar="FILE", help="write a trace for ui.perfetto.dev")
        shown.add_argument("--html", metavar="FILE", help="write a page with timeline, roofline and tables")

    def execute(self, out: Out) -> int:
        files = output_files(self.args, "perfetto", "html")
        target = Path(self.args.target)
        if target.is_dir() or (target.is_file() and target.suffix in _NEFFS):
            profile = self._compiled(target)
        else:
            self._require_script(target)
            from ..profiling import profile_script

            # Where this command answers in one document, the script must not print into it.
            stdout = None if out.mode == "human" else sys.stderr
            run = profile_script(target, self.args.arguments, stdout=stdout, constants=self.args.constants)
            if run.profile is None:
                out.warning(f"no profile: {target} ended with exit code {run.exit_code}")
                return run.exit_code
            profile = run.profile
        self._answer(out, profile, files)
        return 0

    def _compiled(self, path: Path) -> Profile:
        from ..profiling import profile_compiled

        if self.args.arguments:
            words = shlex.join(self.args.arguments)
            raise ConfigError(f"{path} is a compiled model, which takes no arguments.", hint=f"Remove {words}.")
        return profile_compiled(path, **options_from(self.args, *_LENGTHS, "constants"))

    def _require_script(self, target: Path) -> None:
        lengths = options_from(self.args, *_LENGTHS)
        if lengths:
            flags = ", ".join(f"--{name}" for name in lengths)
            raise ConfigError(f"{target} is not an exported folder.", hint=f"Remove {flags}, or pass such a folder.")
        if not target.is_file():
            raise ConfigError(f"{target} does not exist.", hint="Pass an exported folder, a NEFF or a Python file.")

    def _answer(self, out: Out, profile: Profile, files: Mapping[str, Path]) -> None:
        from ..profiling import page, trace_json

        made = {"perfetto": trace_json, "html": page}
        for name, path in files.items():
            write_bytes(path, made[name](profile).encode(), error=ConfigError)
        top = self.args.top or (DEFAULT_TOP if out.mode == "human" else None)
        data = {**profile.to_dict(top), "files": {name: str(path) for name, path in files.items()}}
        out.result(data, human=show_profile, brief=f"{profile.device_us / 1e3:.4g} ms (simulated)")
        if not files:
            words = shlex.join([self.args.target, *self.args.arguments])
            out.hint(f"optimum-cli neuron profile --html report.html --perfetto trace.json -- {words}")


def show_profile(out: Out, data: Mapping[str, Any]) -> None:
    where = ", ".join(f"{machine['instance']} ({machine['target']})" for machine in data["machines"])
    out.text(f"profile of {data['name']} on {where}: simulated")
    out.text()
    shown, rows = data["operators"], data["num_rows"]
    _show_graphs(out, data["graphs"], most=len(shown) if len(shown) < rows else len(data["graphs"]))
    out.text()
    title = "operators, all calls" if len(shown) == rows else f"operators, all calls: the first {len(shown)} of {rows}"
    out.table([_operator_row(row) for row in shown], title=title)
    out.text()
    total = data["total_us"]
    spans = {name: time_span(value / 1e6) for name, value in {**total, "device": data["device_us"]}.items()}
    out.text(
        f"device: {spans['device']} in {counted(data['num_calls'], 'call')}; with the host path of an estimate "
        f"{spans['value']}, 80 % interval {spans['low']} to {spans['high']}; all simulated"
    )
    out.text(f"between calls: {time_span(data['host_between_us'] / 1e6)} of this host, measured")
    for core in data["cores"]:
        used = size(sum(core["hbm_bytes"].values()))
        busy = time_span(core["busy_us"] / 1e6)
        out.text(f"core {core['core_id']} of {core['instance']}: busy {busy}, {used} of HBM")
    for name, one in data["unknown_operators"].items():
        share = f"{one['share_of_calls']:.1%} of all calls of operators"
        out.text(f"not counted: {name}, {counted(one['num_calls'], 'call')} ({share}): its sizes depend on values")
    out.remarks(data)
    for name, path in data["files"].items():
        out.text(f"wrote {path}" + (": open it at https://ui.perfetto.dev" if name == "perfetto" else ""))


def _show_graphs(out: Out, graphs: Sequence[Mapping[str, Any]], *, most: int) -> None:
    """Render graphs; of more than `most`, those with the most time in all calls."""
    title = "graphs, times of one call in ms"
    if len(graphs) > most:
        title = f"{title}: the first {most} of {len(graphs)}"
        graphs = sorted(graphs, key=lambda graph: -graph["num_calls"] * graph["total_us"])[:most]
    out.table([_graph_row(graph) for graph in graphs], title=title)


def _graph_row(graph: Mapping[str, Any]) -> dict[str, Any]:
    total = graph["total_us"] / 1e3
    busy = [(name, graph["parts_us"][name] / graph["device_us"]) for name in ("tensor", "vector", "dma", "link")]
    return {
        "graph": graph["graph"],
        "model": graph["model"],
        "calls": graph["num_calls"],
        "device": graph["device_us"] / 1e3,
        "host path": graph["path_us"] / 1e3,
        "total": total,
        "80 % interval": f"{cell(graph['low'] * total)} to {cell(graph['high'] * total)}",
        "limited by": graph["limited_by"],
        "busy": ", ".join(f"{name} {share:.0%}" for name, share in busy if share),
    }


def _operator_row(row: Mapping[str, Any]) -> dict[str, Any]:
    from ..profiling import short_line

    return {
        "operator": row["operator"],
        "module": row["module_path"],
        "source": short_line(row["source_line"]),
        "graph": row["graph"],
        "engine": row["engine"],
        "calls": row["num_calls"],
        "ms": row["time_us"] / 1e3,
        "share": f"{row['share']:.1%}",
        "bound by": row["bound"],
    }
