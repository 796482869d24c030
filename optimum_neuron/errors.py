"""Every exception this package raises, in one tree.

    NeuronError
    +-- ConfigError (ValueError)            an option is unknown, contradictory or out of range
    |   +-- UnsupportedDtypeError           the target has no arithmetic for that dtype
    |   +-- AssertedConfigError (AssertionError)  NxD Inference asserts what the option breaks
    |   +-- RuntimeConfigError (RuntimeError)  a run of NxD cannot be as its options say
    |   +-- NotSupportedError (NotImplementedError)  the vendor's library has a feature that is not here
    |   +-- UnknownNameError (KeyError)     no program, tensor, or state has the requested name
    |   +-- NotExportedError (FileNotFoundError)  a checkpoint was passed where only an export can be loaded
    |   +-- UnsupportedAttributeError (AttributeError)  a compiled model has no such method
    +-- ModelError (ValueError)             the folder, architecture or task cannot be used
    |   +-- WeightsError                    weights are missing, renamed, reshaped or altered
    +-- CaptureError (ValueError)           the model's code cannot become a static graph
    +-- UnsupportedOperatorError (ValueError)  operators the target refuses, all of them
    |   +-- NoFallbackError (AttributeError)  the CPU may not run them, so the model is not traced
    |   +-- NothingCompiledError (RuntimeError)  the CPU would have to run all of them
    +-- ShapeError (ValueError)             an input does not fit the compiled shapes
    +-- ValidationError (ValueError)        a compiled model drifts from the original
    |   +-- LogitMatchingError (AssertionError)  logits or tokens differ from the expected ones
    +-- ArtifactError (ValueError)          a NEFF or exported folder is broken, foreign or unsafe
    |   +-- TargetMismatchError             compiled for another NeuronCore generation
    |   +-- FormatVersionError              written by a newer format
    +-- DeviceMemoryError (MemoryError)     the model does not fit the HBM of its cores
    +-- NumericsError (ArithmeticError)     a loss or gradient is not a finite number
    +-- KernelError (AssertionError)        an NKI kernel breaks a rule of the core
    |   +-- UnknownKeywordError (TypeError)  an instruction has no such parameter
    +-- CoreBusyError (RuntimeError)        another process holds the core
    +-- CollectiveError (RuntimeError)      ranks call different collectives, or one has ended
    +-- QueueFullError (RuntimeError)       no more requests can wait
    +-- RequestError (ValueError)           the server rejects a request
    +-- CacheError (OSError)                the compile cache cannot be used
    +-- LoweringError (RuntimeError)        host code could not be made for a subprogram

An error has parts: `code` names its class, `message` states the problem, with the value, `hint` the remedy, and
`details` are the facts for programs. `str(error)` is message and hint. The command line prints it without a traceback;
`OPTIMUM_NEURON_DEBUG=1` brings the traceback back.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, ClassVar

__all__ = [
    "ArtifactError",
    "AssertedConfigError",
    "CacheError",
    "CaptureError",
    "CollectiveError",
    "ConfigError",
    "CoreBusyError",
    "DeviceMemoryError",
    "FormatVersionError",
    "KernelError",
    "LogitMatchingError",
    "LoweringError",
    "ModelError",
    "NeuronError",
    "NoFallbackError",
    "NotExportedError",
    "NotSupportedError",
    "NothingCompiledError",
    "NumericsError",
    "QueueFullError",
    "RequestError",
    "RuntimeConfigError",
    "ShapeError",
    "TargetMismatchError",
    "UnknownKeywordError",
    "UnknownNameError",
    "UnsupportedAttributeError",
    "UnsupportedDtypeError",
    "UnsupportedOperatorError",
    "ValidationError",
    "WeightsError",
    "invalid_choice",
    "nearest",
    "raise_together",
]


class NeuronError(Exception):
    """Base of every error raised on purpose by this package.

    Args:
        message: One or two plain sentences that state the problem, with the value; a table may follow on its own lines.
        hint: Remedy, as an imperative sentence.
        **details: the facts for programs; the command line adds them to `--json` output.
    """

    code: ClassVar[str] = "neuron"
    """Name of the class for programs: "config" for `ConfigError`."""

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        return f"{self.message}{chr(10) if chr(10) in self.message else ' '}{self.hint}" if self.hint else self.message

    def to_dict(self) -> dict[str, Any]:
        """Return the parts as plain data, as `--json` prints them."""
        parts = {"code": self.code, "message": self.message, "hint": self.hint, "details": self.details}
        return {"type": type(self).__name__, **parts}


class ConfigError(NeuronError, ValueError):
    """An option is unknown, contradicts another one, or is out of range."""


class UnsupportedDtypeError(ConfigError):
    """The target has no arithmetic for the dtype that was asked for."""


class RuntimeConfigError(ConfigError, RuntimeError):
    """A run cannot be as its options say, and scripts for NxD catch RuntimeError."""


class NotSupportedError(ConfigError, NotImplementedError):
    """A feature of the vendor's library that this package does not have."""


class UnknownNameError(ConfigError, KeyError):
    """No program, tensor, or state has the requested name, or its shape differs."""

    __str__ = NeuronError.__str__


class AssertedConfigError(ConfigError, AssertionError):
    """An option breaks what NxD Inference asserts, and scripts for it catch."""


class NotExportedError(ConfigError, FileNotFoundError):
    """A checkpoint was passed where only an exported model can be loaded: its compiled file does not exist."""


class UnsupportedAttributeError(ConfigError, AttributeError):
    """A model of transformers has the attribute, and a compiled one does not."""


class ModelError(NeuronError, ValueError):
    """The model folder, its architecture or its task cannot be used."""


class WeightsError(ModelError):
    """Weights are missing, renamed, of another shape, or differ from their recorded hash."""


class CaptureError(NeuronError, ValueError):
    """The model's Python code cannot be turned into one static graph."""


class UnsupportedOperatorError(NeuronError, ValueError):
    """The target refuses operators of the graph; all of them are listed."""


class NoFallbackError(UnsupportedOperatorError, AttributeError):
    """The target refuses operators, and the CPU may not run them."""


class NothingCompiledError(UnsupportedOperatorError, RuntimeError):
    """No operator of a model can run on a core."""


class ShapeError(NeuronError, ValueError):
    """An input does not fit any of the compiled shapes."""


class ValidationError(NeuronError, ValueError):
    """The compiled model differs from the original by more than the tolerance."""


class LogitMatchingError(ValidationError, AssertionError):
    """Logits or tokens of a compiled model differ from the expected ones; NxD Inference asserts that they do not."""

    @property
    def results(self) -> list[list[dict[str, Any]]]:
        """For each sequence, whether each token passed; empty if tokens and not logits were compared."""
        results: list[list[dict[str, Any]]] = self.details.get("results", [])
        return results

    def get_divergence_index(self) -> int:
        """Return the last token whose logits differ in a sequence; 0 if the first token's do, -1 if none do."""
        failed = {index for row in self.results for index, token in enumerate(row) if not token["passed"]}
        return -1 if not failed else 0 if 0 in failed else max(failed)


class ArtifactError(NeuronError, ValueError):
    """A NEFF or an exported folder is broken, incomplete or unsafe."""


class TargetMismatchError(ArtifactError):
    """The artifact was compiled for another NeuronCore generation."""


class FormatVersionError(ArtifactError):
    """The artifact was written by a newer version of the format."""


class DeviceMemoryError(NeuronError, MemoryError):
    """The model does not fit the HBM of the cores it was given."""


class NumericsError(NeuronError, ArithmeticError):
    """A loss or a gradient of training is not a finite number."""


class KernelError(NeuronError, AssertionError):
    """An NKI kernel breaks a rule of the core; `details` have the rule and the line of the kernel."""


class UnknownKeywordError(KernelError, TypeError):
    """An instruction of NKI has no parameter of that name."""


class CoreBusyError(NeuronError, RuntimeError):
    """A simulated NeuronCore is claimed by another process."""


class CollectiveError(NeuronError, RuntimeError):
    """Ranks of a run call different collectives, or one of them has ended."""


class QueueFullError(NeuronError, RuntimeError):
    """No more requests can wait for their turn."""


class RequestError(NeuronError, ValueError):
    """The server rejects a request, with the HTTP status in its details."""


class CacheError(NeuronError, OSError):
    """The compile cache cannot be read or written."""


class LoweringError(NeuronError, RuntimeError):
    """Host code could not be generated for a subprogram."""


def invalid_choice(
    option: str, value: object, choices: Iterable[str], *, error: type[NeuronError] = ConfigError
) -> NeuronError:
    """Return the error for an option whose value is not one of a few.

    >>> print(invalid_choice("auto_cast", "matmull", ["none", "matmul", "all"]))
    auto_cast='matmull' is not supported, did you mean 'matmul'? Choose from none, matmul, all.
    """
    names = list(choices)
    guess = nearest(str(value), names)
    message = f"{option}={value!r} is not supported{guess or '.'}"
    return error(message, hint=f"Choose from {', '.join(names)}.", option=option, value=value, choices=names)


def raise_together(problems: Iterable[NeuronError]) -> None:
    """Raise all problems as one error of the class of the first; return if there are none."""
    every = list(problems)
    if len(every) == 1:
        raise every[0]
    if every:
        raise type(every[0])("\n".join(map(str, every)), problems=[problem.to_dict() for problem in every])


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ", did you mean 'x'?" for the closest choice, or an empty string.

    >>> nearest("batchsize", ["batch_size", "task"])
    ", did you mean 'batch_size'?"
    """
    match = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return f", did you mean '{match[0]}'?" if match else ""
