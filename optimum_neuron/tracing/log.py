"""The log of a compile, for `--logfile`: what was asked, what the operator check found, and what was decided.

It is written when the compile ends, also with an error. It knows nothing of how a program is compiled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..compiler.compile import Compiled
from ..errors import ConfigError, NeuronError


class CompileLog:
    """Lines of one compile."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, line: str) -> None:
        """Add a line, or several in one text."""
        self.lines.append(line)

    def add_compiled(self, names: list[str], compiled: Compiled) -> None:
        """Add the operator check of each entry point, and how many layers of each stack were captured."""
        for name, report in zip(names, compiled.reports, strict=True):
            self.add(f"graph {name}:\n{report.table()}")
        for path, choice in compiled.stacks.items():
            self.add(f"stack {path}: {choice.value} layers captured, {choice.reason}")


@contextlib.contextmanager
def compile_log(path: str | None) -> Iterator[CompileLog]:
    """Write what is added inside to a file when the block ends; None writes none.

    Raises:
        ConfigError: the file cannot be written.
    """
    log = CompileLog()
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
            log.add(f"{type(error).__name__}: {error}")
            raise
        finally:
            file.write("\n".join([*log.lines, ""]))


def unwritable(flag: str, path: str, error: OSError) -> ConfigError:
    """Return the error for a flag whose path cannot be written."""
    message = f"{flag} {path} of compiler_args cannot be written ({error.strerror or error})."
    return ConfigError(
        message, hint="Name a path in a folder that exists and that you may write.", flag=flag, path=path
    )
