"""Compile subprograms: their functions are written one after the other, and g++ takes several of them at once.

Torch's headers take g++ longer than a function does, so functions share files. Python writes the next functions while
the compiler works on a file. It runs in this process or in a worker of its own (`background.py`).

    compile_jobs([Job(body=..., level="inductor", record=record_path(...))], num_compilers=2)
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ...errors import LoweringError, NeuronError
from ...shared_objects import publish
from .choose import HostLevel
from .prepare import Preparation
from .store import writable

HEADER = Path(__file__).with_name("host.h")

UNIT_NODES = 160
"""Operators in one file: about three blocks of a decoder."""

_INCLUDE = re.compile(r"^\s*(#include .*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One subprogram to compile."""

    body: dict[str, Any]
    """As `serial.body_to_dict` returns it."""
    level: HostLevel
    """How to compile it."""
    record: Path
    """Where the record of the result goes; the name begins with the subprogram's."""
    preparations: tuple[Preparation, ...] = ()
    """Weights that it gets in another form."""

    @property
    def name(self) -> str:
        """Name of the subprogram."""
        return self.record.name.partition("-")[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for another process."""
        preparations = [one.to_list() for one in self.preparations]
        return {"body": self.body, "level": self.level, "record": str(self.record), "preparations": preparations}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Job:
        """Inverse of `to_dict`."""
        preparations = tuple(Preparation.from_list(one) for one in data["preparations"])
        return cls(body=data["body"], level=data["level"], record=Path(data["record"]), preparations=preparations)


Unit = list[tuple[Job, str]]
"""Jobs of one file, each with its C++."""


def compile_jobs(jobs: Sequence[Job], *, num_compilers: int, on_done: Callable[[Job], None] = lambda job: None) -> None:
    """Compile subprograms into the store.

    Args:
        jobs: what to compile; the largest are written first.
        num_compilers: C++ compilers that run at the same time.
        on_done: called in this thread for each job whose record is written.

    Raises:
        LoweringError: at least one job failed; all failures are named, and the other jobs are done.
    """
    from .generate import generate

    waiting = sorted(jobs, key=lambda job: -len(job.body["nodes"]))
    failures: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="optimum-neuron-") as work,
        ThreadPoolExecutor(num_compilers, thread_name_prefix="host code") as pool,
    ):
        running: list[tuple[list[Job], Future[None]]] = []
        unit: Unit = []
        for index, job in enumerate(waiting):
            try:
                unit.append((job, generate(job.body, job.level, job.preparations)))
            except Exception as error:  # whatever Inductor raises for code that it cannot write
                failures.append(_failure([job], error))
            last = index == len(waiting) - 1
            if unit and (last or _size(unit) + _size([(waiting[index + 1], "")]) > UNIT_NODES):
                # Here and not in the thread: Inductor's settings are those of the thread that they were made in.
                built = Path(work, f"unit{index}.so")
                command = compiler_command(built.with_suffix(".cpp"), built)
                running.append(([job for job, _ in unit], pool.submit(compile_unit, unit, command, built)))
                unit = []
            running = _collect(running, failures, on_done, wait=last)
        _collect(running, failures, on_done, wait=True)
    if failures:
        raise LoweringError("\n".join(failures), details={"failures": failures})


def _size(unit: Unit) -> int:
    return sum(len(job.body["nodes"]) for job, _ in unit)


def _collect(
    running: list[tuple[list[Job], Future[None]]],
    failures: list[str],
    on_done: Callable[[Job], None],
    *,
    wait: bool,
) -> list[tuple[list[Job], Future[None]]]:
    """Report what has ended and return the rest."""
    rest = []
    for jobs, future in running:
        if not wait and not future.done():
            rest.append((jobs, future))
            continue
        error = future.exception()
        if error is None:
            for job in jobs:
                on_done(job)
        elif isinstance(error, Exception):
            failures.append(_failure(jobs, error))
        else:
            raise error
    return rest


def _failure(jobs: Sequence[Job], error: Exception) -> str:
    text = str(error).strip() if isinstance(error, NeuronError) else f"{type(error).__name__}: {error}".strip()
    names = ", ".join(job.name for job in jobs)
    return f"Host code for {names} could not be compiled: {_shortened(text)}. Use -O1, which compiles nothing."


def _shortened(text: str, first: int = 150, last: int = 600) -> str:
    """The kind of error is at the start, the compiler's words are at the end; its command line between is long."""
    return text if len(text) <= first + last else f"{text[:first]} ... {text[-last:]}"


def compile_unit(functions: Unit, command: Sequence[str], built: Path) -> None:
    """Compile the text of some jobs into one library and publish it.

    Args:
        functions: the jobs with their C++.
        command: what compiles a file beside `built`, with the ending .cpp, into it.
        built: the library, before it is published.

    Raises:
        LoweringError: the compiler fails, or the store cannot be written.
    """
    from .wrapper import FUNCTION_NAME

    records = {writable(job.record): job.name for job, _ in functions}
    text = "\n".join(
        f"namespace unit_{job.name} {{\n{_INCLUDE.sub('', text).replace(FUNCTION_NAME, job.name)}\n}}"
        for job, text in functions
    )
    includes = sorted({line for _, text in functions for line in _INCLUDE.findall(text)})
    source = "\n".join(['#include "host.h"', *includes, text])
    digest = hashlib.sha256(json.dumps(sorted(record.name for record in records)).encode()).hexdigest()[:16]
    built.with_suffix(".cpp").write_text(source)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LoweringError(f"the C++ compiler ended with {done.returncode}: {done.stderr.strip()}")
    publish(built, next(iter(records)).with_name(f"unit-{digest}.so"), records)


def compiler_command(source: Path, output: Path) -> list[str]:
    """Return the command that Inductor would compile a kernel with, for a library of ours."""
    from torch._inductor import config
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    from .generate import inductor_options

    with config.patch(inductor_options("inductor")):
        options = CppTorchOptions(vec_isa=pick_vec_isa(), include_pytorch=False, warning_all=False)
        builder = CppBuilder(
            name=output.stem, sources=[str(source)], output_dir=str(output.parent), BuildOption=options
        )
        words = shlex.split(builder.get_command_line())
    # Neither Python nor lines for a debugger: nothing calls the one, nobody looks at the other.
    unneeded = ("-g1", "-ltorch_python")
    return [*(word for word in words if word not in unneeded), "-w", f"-I{HEADER.parent}"]
