"""The log of a compile, for `--logfile`: options, findings of the operator check, and decisions.

It is written when the compile ends, also with an error. It does not depend on how a program is compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..compiler import Compiled
from ..errors import ConfigError, NeuronError


def compiled_lines(names: Iterable[str], compiled: Compiled) -> Iterator[str]:
    """The operator check of each entry point, and how many layers of each stack were captured."""
    for name, report in zip(names, compiled.reports, strict=True):
        yield f"graph {name}:\n{report.table()}"
    for path, choice in compiled.stacks.items():
        yield f"stack {path}: {choice.value} layers captured, {choice.reason}"


@contextlib.contextmanager
def compile_log(path: str | None) -> Iterator[list[str]]:
    """Write the lines that are added inside to a file when the block ends; None writes none."""
    log: list[str] = []
    if path is None:
        yield log
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("w", encoding="utf-8"))
        except OSError as error:
            raise unwritable("--logfile", path, error) from error
        try:
            yield log
        except NeuronError as error:
            log.append(f"{type(error).__name__}: {error}")
            raise
        finally:
            file.write("\n".join([*log, ""]))


def unwritable(flag: str, path: str | Path, error: OSError) -> ConfigError:
    """Return the error for a flag whose path cannot be written."""
    message = f"{flag} {path} cannot be written ({error.strerror or error})."
    return ConfigError(message, hint="Name a path in a folder that you may write.", flag=flag, path=str(path))
