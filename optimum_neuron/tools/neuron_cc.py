"""`neuron-cc`, the compiler of Inf1: check its flags, compile an exported program, and list operators.

Inputs of the real compiler are graphs of TensorFlow, MXNet, and XLA, which cannot be read here; an input is a program
of `torch.export.save` (`.pt2`). Every operator of it has to be on the list of NeuronCore-v1: only
`torch.neuron.trace` leaves operators to the CPU.

    neuron-cc compile model.pt2 --fast-math none --output model.neff
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.wording import size
from ..cli import NeuronParser, Out, run_guarded
from ..compiler import COMPILER_VERSION, FRAMEWORKS, NEURON_CC_ARITY, CompilerFlags, parse_neuron_cc
from ..compiler.rules import neuroncore_v1
from ..errors import ConfigError
from ..hardware import TARGETS
from .neuronx_cc import positional_inputs, read_exported

DEFAULT_OUTPUT = "out.neff"
"""Name that the real compiler gives to its result."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuron-cc` and return its exit code."""
    parser = NeuronParser(prog="neuron-cc", description="The compiler of simulated NeuronCores of Inf1.")
    parser.add_argument(
        "--version", action="version", version=f"Neuron Compiler version {COMPILER_VERSION} (simulated)"
    )
    parser.add_argument("--verbose", choices=["DEBUG", "INFO", "WARN", "ERROR"], default="WARN", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True)
    compile_parser = commands.add_parser("compile", help="compile an exported program (.pt2) into a NEFF")
    compile_parser.add_argument("model", metavar="MODEL", help="file that torch.export.save wrote")
    compile_parser.add_argument("--output", metavar="FILE", default=DEFAULT_OUTPUT, help="file to write")
    for name, arity in NEURON_CC_ARITY.items():
        if name not in ("--output", "--verbose"):
            values: dict[str, Any] = {"nargs": arity, "metavar": "VALUE"}
            values = values if arity else {"action": "store_const", "const": ()}
            compile_parser.add_argument(name, dest=name, default=argparse.SUPPRESS, **values)
    operators = commands.add_parser("list-operators", help="list the operators of NeuronCore-v1")
    operators.add_argument("--framework", default="PYTORCH", choices=["PYTORCH", *FRAMEWORKS])
    options = parser.parse_args(arguments)

    def run(out: Out) -> None:
        if options.command == "list-operators":
            _list_operators(out, options.framework)
            return
        output = Path(options.output)
        compile_program(Path(options.model), output, _words(vars(options)))
        out.text(f"{output}: {size(output.stat().st_size)}, simulated")
        out.text("Compiler status PASS")

    return run_guarded(run, Out(), command=f"neuron-cc {options.command}")


def _words(options: Mapping[str, Any]) -> list[str]:
    """Return the flags as words of a command line."""
    return [word for name, values in options.items() if name.startswith("-") for word in (name, *values)]


def _list_operators(out: Out, framework: str) -> None:
    if framework != "PYTORCH":
        message = f"Operators of {framework} are not known here: there is no {framework}."
        raise ConfigError(message, hint="List those of torch with --framework PYTORCH.", option="framework")
    for name in neuroncore_v1.SUPPORTED:
        out.text(name)


def compile_program(model: Path, output: Path, flags: Sequence[str]) -> None:
    """Compile a saved program for Inf1 and write its NEFF.

    Args:
        model: file that `torch.export.save` wrote.
    """
    parsed = parse_neuron_cc(flags)
    if not (parent := output.absolute().parent).is_dir():
        hint = "Create it, or pass another --output."
        raise ConfigError(f"The folder {parent} of --output does not exist.", hint=hint, option="output")
    if parsed.pipeline_cores > 1:
        message = f"--neuroncore-pipeline-cores {parsed.pipeline_cores} divides traced models only."
        hint = "Pass it in compiler_args of torch.neuron.trace."
        raise ConfigError(message, hint=hint, option="--neuroncore-pipeline-cores")
    program = read_exported(model)
    inputs: tuple[Any, ...] = positional_inputs(model, program.example_inputs)
    from ..tracing import NEFF_FILE, Flags, compile_entries, make_entry

    options = CompilerFlags(auto_cast=parsed.auto_cast, auto_cast_type=parsed.auto_cast_type)
    with tempfile.TemporaryDirectory(prefix="neuron-cc-") as folder:
        entry = make_entry(program.module(), inputs, {})
        checked = Flags(flags=options, target=TARGETS["inf1"])
        neff, _ = compile_entries({"graph": entry}, checked, Path(folder), inline_weights=True)
        neff.close()
        shutil.move(Path(folder) / NEFF_FILE, output)


if __name__ == "__main__":
    sys.exit(main())
