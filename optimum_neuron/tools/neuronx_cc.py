"""`neuronx-cc`: compile an exported program into a NEFF, with the documented flags of the real compiler.

The input is a program of `torch.export.save` (`.pt2`). HLO, the input of the real compiler, cannot be read: there is no
XLA here. The NEFF is for this package; `optimum-cli neuron estimate` takes it too. Nothing runs on a simulated core.
torch reads the file, and torch may run code that is in it: compile files that you trust.

    neuronx-cc compile model.pt2 --target trn2 --auto-cast matmult --output model.neff
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.wording import size
from ..cli import NeuronParser, Out, run_guarded
from ..compiler import ALIASES, COMPILER_VERSION, OF_NEURON_CC, SWITCHES, VALUES
from ..errors import ConfigError
from ..hardware import resolve_target

if TYPE_CHECKING:
    from torch.export import ExportedProgram

DEFAULT_OUTPUT = "file.neff"
"""Name that the real compiler gives to its result."""
_SAVE = "Save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2')."
_HLO = (".pb", ".hlo", ".hlo_module", ".mlir", ".stablehlo")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `neuronx-cc` and return its exit code."""
    parser = NeuronParser(prog="neuronx-cc", description="The compiler of simulated NeuronCores.")
    version = f"NeuronX Compiler version {COMPILER_VERSION} (simulated)"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True)
    compile_parser = commands.add_parser("compile", help="compile an exported program (.pt2) into a NEFF")
    compile_parser.add_argument("model", metavar="MODEL", help="file that torch.export.save wrote")
    for name in VALUES:
        names = [*(alias for alias, flag in ALIASES.items() if flag == name), name]
        compile_parser.add_argument(*names, dest=name, metavar="VALUE", default=argparse.SUPPRESS)
    for name in SWITCHES:
        compile_parser.add_argument(name, dest=name, action="store_true", default=argparse.SUPPRESS)
    for name in OF_NEURON_CC:  # for their error
        compile_parser.add_argument(name, dest=name, nargs="*", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    options = vars(parser.parse_args(arguments))

    def run(out: Out) -> None:
        output = Path(options.get("--output", DEFAULT_OUTPUT))
        compile_program(Path(options["model"]), output, _words(options))
        out.text(f"{output}: {size(output.stat().st_size)}, simulated")
        out.text("Compiler status PASS")

    return run_guarded(run, Out(), command="neuronx-cc compile")


def compile_program(model: Path, output: Path, flags: Sequence[str]) -> None:
    """Compile a saved program and write its NEFF.

    Args:
        model: file that `torch.export.save` wrote.
        flags: words of the compiler's command line, `--output` left out.
    """
    if not (parent := output.absolute().parent).is_dir():
        hint = "Create it, or pass another --output."
        raise ConfigError(f"The folder {parent} of --output does not exist.", hint=hint, option="output")
    program = read_exported(model)
    inputs = positional_inputs(model, program.example_inputs)
    from ..tracing import NEFF_FILE, checked_flags, compile_entries, make_entry

    target = [] if any(word.startswith("--target=") for word in flags) else [f"--target={resolve_target().value.name}"]
    with tempfile.TemporaryDirectory(prefix="neuronx-cc-") as folder:
        # Checked as for trace(cpu_backend=True): no instance has to be able to run the program.
        checked = checked_flags([*target, *flags], cpu_backend=True)
        entry = make_entry(program.module(), inputs, {})
        neff, _ = compile_entries({"graph": entry}, checked, Path(folder), inline_weights=True)
        neff.close()
        shutil.move(Path(folder) / NEFF_FILE, output)


def _words(options: dict[str, Any]) -> list[str]:
    """Flags as words; the place of the result is ours, the other flags are the compiler's."""
    flags = {name: value for name, value in options.items() if name.startswith("--") and name != "--output"}
    return [name if value is True else f"{name}={value}" for name, value in flags.items()]


def read_exported(model: Path) -> ExportedProgram:
    """Read a file of `torch.export.save`; other files are an error that says how to make one."""
    if model.suffix in _HLO:
        raise ConfigError(
            f"{model} is an HLO module, but only torch.export files are supported.", hint=_SAVE, format="hlo"
        )
    if not model.is_file():
        raise ConfigError(f"The file {model} does not exist.", hint="Check the path.", path=str(model))
    import torch

    try:
        return torch.export.load(model)
    except Exception as error:  # torch raises whatever its readers raise
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        message = f"{model} is not a file from torch.export.save ({reason})."
        raise ConfigError(message, hint=_SAVE, path=str(model)) from error


def positional_inputs(model: Path, example: Any) -> tuple[Any, ...]:
    """The example inputs, which give the shapes."""
    positional, named = example if example else ((), {})
    if not positional or named:
        problem = "has keyword inputs" if named else "has no example inputs"
        hint = "Export it with positional inputs: torch.export.export(model, (x, y))."
        raise ConfigError(
            f"{model} {problem}; a compiled graph has positional inputs only.", hint=hint, path=str(model)
        )
    return tuple(positional)


if __name__ == "__main__":
    sys.exit(main())
