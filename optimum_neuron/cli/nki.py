"""`optimum-cli neuron nki FILE:KERNEL`: what an NKI kernel does on the core.

The work is `optimum_neuron.nki.analyze`.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from optimum.commands.base import CommandInfo

from ..base.wording import counted, size
from ..errors import ConfigError
from ..files.atomic import write_bytes
from .arguments import options_from, positive_int
from .output import Out
from .parser import Command

HAZARDS = 10
"""Rows of the table of waits."""
_TENSOR = re.compile(r"(?P<shape>\d+(x\d+)*)(?::(?P<dtype>\w+))?")


class NkiCommand(Command):
    COMMAND = CommandInfo(name="nki", help="Run an NKI kernel and say what bounds it.")
    DESCRIPTION = """Run an NKI kernel once and show its memory, its engines' time, and what the guides advise.

  optimum-cli neuron nki kernels.py:softmax 1024x512:bfloat16
  optimum-cli neuron nki kernels.py:scale 256x64 0.5 --perfetto trace.json

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

    def execute(self, out: Out) -> None:
        from ..nki import analyze, simulate

        kernel = simulate(load_kernel(self.args.kernel))
        if self.args.platform_rules:
            kernel = kernel.changed(platform_rules=True)
        arguments = [parse_argument(text) for text in self.args.arguments]
        options = options_from(self.args, "grid", "perfetto")
        analysis = analyze(kernel[options["grid"]] if "grid" in options else kernel, *arguments)
        if "perfetto" in options:
            write_bytes(Path(options["perfetto"]), json.dumps(analysis.trace()).encode(), error=ConfigError)
        data = {**analysis.to_dict(), "files": {name: options[name] for name in ("perfetto",) if name in options}}
        out.result(data, human=show_analysis, brief=f"{analysis.total_us:.4g} us (simulated)")


def load_kernel(target: str) -> Callable[..., Any]:
    """Import a Python file and return the kernel of a name.

    Args:
        target: the file, a colon, and the name.
    """
    file, _, name = target.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise ConfigError(f"{target} names no Python file and kernel.", hint="Write it as kernels.py:softmax.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file.", hint="Its name ends with .py.")
    sys.path.insert(0, str(path.parent.resolve()))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"{path} has no kernel {name}.", hint="Name a function of the file.", kernel=name)
    return found


def parse_argument(text: str) -> Any:
    """Return an argument of a kernel: a tensor as `128x512:bfloat16`, or a value of Python.

    A number alone is a number: a tensor of one dimension has a dtype, as `512:float32`.
    """
    match = _TENSOR.fullmatch(text)
    if match and ("x" in text or match["dtype"]):
        import torch

        shape = [int(length) for length in match["shape"].split("x")]
        dtype = getattr(torch, match["dtype"] or "float32", None)
        if isinstance(dtype, torch.dtype):
            kind = torch.float32 if dtype.is_floating_point else dtype
            made = torch.randn(shape, generator=torch.Generator().manual_seed(0)) if kind.is_floating_point else None
            return torch.zeros(shape, dtype=dtype) if made is None else made.to(dtype)
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        hint = "Write a tensor as 128x512:bfloat16, a text in quotes, or a number."
        raise ConfigError(f"'{text}' is no argument of a kernel.", hint=hint, argument=text) from error


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
    for path in data["files"].values():
        out.text(f"wrote {path}: open it at https://ui.perfetto.dev")


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
