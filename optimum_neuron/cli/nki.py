"""`optimum-cli neuron nki FILE:KERNEL`: what an NKI kernel does on the core, alone, against another version, or tuned.

The work is that of `analyze`, `compare`, and `tune` in `optimum_neuron.nki`.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, size
from ..errors import ConfigError
from ..files.atomic import write_bytes
from .arguments import options_from, positive_int
from .output import Out
from .parser import Command

if TYPE_CHECKING:
    from ..nki import Analysis, Kernel

HAZARDS = 10
"""Rows of the tables of waits and of lines."""
TRIALS = 20
"""Rows of the table of candidates."""


class NkiCommand(Command):
    COMMAND = CommandInfo(name="nki", help="Run an NKI kernel and say what bounds it.")
    DESCRIPTION = """Run an NKI kernel once and show its memory, its engines' time, and what the guides advise.

  optimum-cli neuron nki kernels.py:softmax 1024x512:bfloat16
  optimum-cli neuron nki kernels.py:scale 256x64 0.5 --perfetto trace.json --html page.html
  optimum-cli neuron nki old.py:softmax 1024x512 --against new.py:softmax
  optimum-cli neuron nki kernels.py:scale 256x8192 0.5 --tune columns=512,1024,2048

NEURON_PLATFORM_TARGET_OVERRIDE selects the target, as for all kernels.
"""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel", metavar="FILE:KERNEL", help="Python file, and name of the kernel in it")
        parser.add_argument(
            "arguments",
            metavar="ARGUMENT",
            nargs="*",
            help="one of the kernel: a tensor as 128x512:bfloat16 (default: float32; random, integers 0), or a number, "
            "True, False, None, or a quoted text",
        )
        parser.add_argument("--grid", type=positive_int, metavar="N", help="run on N cores (default: one)")
        parser.add_argument(
            "--platform_rules",
            action="store_true",
            help="refuse Python that the hardware's compiler does not take (default: list it)",
        )
        parser.add_argument("--perfetto", metavar="FILE", help="write a trace for ui.perfetto.dev")
        parser.add_argument("--html", metavar="FILE", help="write a page with engines over time and the source beside")
        other = parser.add_argument_group("versions of a kernel").add_mutually_exclusive_group()
        other.add_argument(
            "--against", metavar="FILE:KERNEL", help="run another version with the same arguments, and say what moved"
        )
        other.add_argument(
            "--tune",
            metavar="NAME=VALUE,...",
            action="append",
            help="a keyword of the kernel with values to try; the fastest are shown (may be repeated)",
        )
        parser.add_argument("--seconds", type=positive_int, metavar="N", help="end of --tune (default: 60)")

    def execute(self, out: Out) -> None:
        from ..nki import analyze, check_arguments, compare, parse_argument

        options = options_from(self.args, "perfetto", "html", "against", "tune", "seconds")
        if "seconds" in options and "tune" not in options:
            raise ConfigError("--seconds has no effect without --tune.", hint="Remove it, or add --tune.")
        kernel, arguments = self._kernel(self.args.kernel), [parse_argument(text) for text in self.args.arguments]
        if "tune" in options:
            self._tune(out, kernel, arguments, options)
            return
        check_arguments(kernel, arguments, {})
        analysis = analyze(kernel, *arguments)
        if "against" not in options:
            files = _write(options, analysis)
            data = {**analysis.to_dict(), "files": files}
            out.result(data, human=show_analysis, brief=f"{analysis.total_us:.4g} us (simulated)")
            return
        other, arguments = self._kernel(options["against"]), [parse_argument(text) for text in self.args.arguments]
        check_arguments(other, arguments, {})
        after = analyze(other, *arguments)
        files = _write(options, after, before=analysis)
        comparison = compare(analysis, after)
        data = {**comparison.to_dict(), "versions": [self.args.kernel, options["against"]], "files": files}
        out.result(data, human=show_comparison, brief=f"{comparison.speedup:.4g} times as fast (simulated)")

    def _kernel(self, target: str) -> Kernel:
        from ..nki import load_kernel, simulate

        kernel = simulate(load_kernel(target))
        if self.args.platform_rules:
            kernel = kernel.changed(platform_rules=True)
        return kernel[self.args.grid] if self.args.grid else kernel

    def _tune(self, out: Out, kernel: Kernel, arguments: list[Any], options: Mapping[str, Any]) -> None:
        from ..nki import tune

        space = dict(map(parse_values, options["tune"]))
        limit = {"seconds": float(options["seconds"])} if "seconds" in options else {}
        tuning = tune(kernel, *arguments, space=space, **limit)
        data = {**tuning.to_dict(), "files": _write(options, tuning.analysis)}
        out.result(data, human=show_tuning, brief=json.dumps(data["choice"]["value"]))


def _write(options: Mapping[str, Any], analysis: Analysis, *, before: Analysis | None = None) -> dict[str, str]:
    """Write the files that are asked for, and return their names."""
    from ..profiling import kernel_page

    made = {
        "perfetto": lambda: json.dumps(analysis.trace()),
        "html": lambda: kernel_page(analysis) if before is None else kernel_page(before, analysis),
    }
    files = {name: options[name] for name in made if name in options}
    for name, path in files.items():
        write_bytes(Path(path), made[name]().encode(), error=ConfigError)
    return files


def parse_values(text: str) -> tuple[str, list[Any]]:
    """Return the keyword and the values of `columns=256,512`.

    >>> parse_values("columns=256,512")
    ('columns', [256, 512])
    """
    name, separator, values = text.partition("=")
    if not separator or not name.isidentifier():
        message = f"--tune {text} names no keyword with values."
        raise ConfigError(message, hint="Write it as --tune columns=256,512.", argument=text)
    try:
        return name, list(ast.literal_eval(f"({values},)"))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(
            f"--tune {text} has a value that is no number, True, False, None, or quoted text.",
            hint="Write it as --tune columns=256,512.",
            argument=text,
        ) from error


def show_comparison(out: Out, data: Mapping[str, Any]) -> None:
    """Render both versions by engine and memory, and what each line moved."""
    (before, after), (first, second) = (data["before"], data["after"]), data["versions"]
    out.text(f"first {first}, second {second}, simulated on {after['target']}")
    out.text(f"the second is {data['speedup']:.3g} times as fast as the first")
    difference = data["difference"]
    out.text(
        "results have different shapes"
        if difference is None
        else f"results differ by at most {difference:.2g} of the largest value"
        if difference
        else "results are equal"
    )
    out.text()
    rows = [("total, us", before["total_us"], after["total_us"])]
    engines = dict.fromkeys((*before["busy_us"], *after["busy_us"]))
    rows += [(f"{name}, us", *(one["busy_us"].get(name, 0.0) for one in (before, after))) for name in engines]
    rows += [("instructions", before["num_instructions"], after["num_instructions"])]
    rows += [("HBM, bytes", *(one["roofline"]["hbm_bytes"] for one in (before, after)))]
    for mine, other in zip(before["memory"], after["memory"], strict=True):
        rows.append((f"{mine['buffer']}, bytes of a partition", mine["peak"], other["peak"]))
    out.table([{"": name, "first": one, "second": two, "moved": two - one} for name, one, two in rows])
    out.text()
    changes = data["lines"][:HAZARDS]
    rest = len(data["lines"]) - len(changes)
    title = f"lines that moved most{f', {rest} more with --json' if rest else ''}"
    out.table([_change_row(one) for one in changes], title=title)
    _show_files(out, data["files"])


def _change_row(one: Mapping[str, Any]) -> dict[str, Any]:
    shown = one["after"] or one["before"]
    return {
        "line": _short(shown["line"]),
        "text": one["kind"],
        "moved, us": ", ".join(f"{engine} {us:+.4g}" for engine, us in one["moved_us"].items()),
        "source": shown["source"],
    }


def show_tuning(out: Out, data: Mapping[str, Any]) -> None:
    """Render the best options with their reason, and the candidates that lost."""
    out.text(f"best: {_options(data['choice']['value'])}")
    out.text(data["choice"]["reason"])
    out.text()
    out.table([_trial_row(one) for one in data["trials"][:TRIALS]], title="candidates, the fastest first")
    _show_files(out, data["files"])


def _trial_row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"options": _options(one["options"]), "us": one["total_us"], "rejected": one["problem"].partition("\n")[0]}


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _show_files(out: Out, files: Mapping[str, str]) -> None:
    for name, path in files.items():
        out.text(f"wrote {path}{': open it at https://ui.perfetto.dev' if name == 'perfetto' else ''}")


def show_analysis(out: Out, data: Mapping[str, Any]) -> None:
    """Render time, engines, memory, reads of what nothing wrote, and advice."""
    roofline = data["roofline"]
    instructions = counted(data["num_instructions"], "instruction")
    out.text(f"kernel {data['name']} on {data['target']}: {data['total_us']:.4g} us in {instructions}, simulated")
    out.text(f"bound by {data['bound']['value']}: {data['bound']['reason']}")
    out.text(
        f"roofline: {roofline['best_us']:.4g} us at best ({roofline['share']:.0%} reached); matmuls "
        f"{roofline['matmul_us']:.4g} us, {size(roofline['hbm_bytes'])} of HBM {roofline['hbm_us']:.4g} us"
    )
    out.text()
    engines = [
        {"engine": name, "us": us, "busy": f"{us / data['total_us']:.0%}"} for name, us in data["busy_us"].items()
    ]
    out.table(engines, title="engines")
    out.text()
    out.table([_memory_row(one) for one in data["memory"]], title="memory, bytes of each partition")
    for read in data["unwritten"]:
        elements = counted(read["num_elements"], "element")
        out.text(f"never written: {elements} of {read['tensor']}, read in {_short(read['line'])}")
    if data["advice"]:
        out.text()
        out.table([_advice_row(one) for one in data["advice"]], title="advice")
    _show_order(out, data)
    _show_files(out, data["files"])


def _show_order(out: Out, data: Mapping[str, Any]) -> None:
    """Render what the framework orders, what nothing orders, and what the hardware's compiler does not take."""
    if data["hazards"]:
        out.text()
        rows = [_hazard_row(one) for one in data["hazards"][:HAZARDS]]
        rest = len(data["hazards"]) - len(rows)
        more = f", {rest} more with --json" if rest else ""
        out.table(rows, title=f"waits that the framework inserts{more}")
    for race in data["races"]:
        lines = f"{_short(race['first_line'])} and {_short(race['second_line'])}"
        out.text(f"race ({race['rule']}) between {lines}: {race['message']} {race['hint']} ({race['document']})")
    for problem in data["platform"]:
        place = f"{_short(problem['line'])}: {problem['source']}"
        out.text(f"not on hardware ({problem['rule']}) {place}: {problem['message']} {problem['hint']}")


def _hazard_row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "depends": one["kind"],
        "tensor": one["tensor"],
        "engines": " > ".join(one["engines"]),
        "first": _short(one["first_line"]),
        "second": _short(one["second_line"]),
        "times": one["num_pairs"],
    }


def _short(line: str) -> str:
    return Path(line).name


def _memory_row(one: Mapping[str, Any]) -> dict[str, Any]:
    overflow = one["overflow_line"]
    return {
        "memory": one["buffer"],
        "most": one["peak"],
        "of": one["capacity"],
        "tiles then": len(one["peak_tiles"]),
        "overflows in": None if overflow is None else _short(overflow),
    }


def _advice_row(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": one["topic"],
        "engine": one["engine"],
        "instructions": one["num_instructions"],
        "us": one["busy_us"],
        "line": _short(one["line"]),
        "advice": one["text"],
        "source": one["source"],
    }
