"""Compile subprograms: write their C++, several in a file, and run the compiler.

Torch's headers take g++ longer than a function does, so functions share files. Python writes the next functions while
the compiler works on a file. This runs in the user's process or in a worker (`background.py`).

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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from ...errors import LoweringError, NeuronError
from ...files.shared_objects import publish
from .choose import HostLevel, probe_cpu
from .kernels import KERNELS
from .prepare import Preparation

HEADER = Path(__file__).with_name("host.h")


UNIT_NODES = 160
"""Operators in one file: about three blocks of a decoder."""

_INCLUDE = re.compile(r"^\s*(#include .*)$", re.MULTILINE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One subprogram to compile."""

    body: dict[str, Any]
    """As `serialize.body_to_dict` returns it."""
    level: HostLevel
    record: Path
    """Path of the record of the result; the name begins with the subprogram's."""
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


Text = tuple[Job, str]
"""A job with its C++."""


def compile_jobs(jobs: Sequence[Job], *, num_compilers: int, on_done: Callable[[Job], None] = lambda job: None) -> None:
    """Compile subprograms into the store, and our own kernels if they call them.

    Args:
        jobs: Jobs to compile; the largest are written first.
        num_compilers: C++ compilers that run at the same time.
        on_done: called in this thread for each job whose record is written.
    """
    failures: list[str] = []
    running: dict[Future[object], tuple[str, list[Job]]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="optimum-neuron-") as work,
        ThreadPoolExecutor(num_compilers, thread_name_prefix="host code") as pool,
    ):
        needed = list(KERNELS)
        for number, unit in enumerate(_units(jobs)):
            texts = _written(unit, failures)
            for kernel in [one for one in needed if any(one.is_called(text) for _, text in texts)]:
                needed.remove(kernel)
                library = kernel.library(probe_cpu().isa)
                running[pool.submit(library.ensure_built)] = (library.title, [])
            if texts:
                # Not in the pool: Inductor's settings belong to this thread.
                built = Path(work, f"unit{number}.so")
                command = compiler_command(built.with_suffix(".cpp"), built)
                done = [job for job, _ in texts]
                running[pool.submit(compile_unit, texts, command, built)] = (", ".join(job.name for job in done), done)
            _report(wait(running, timeout=0).done, running, failures, on_done)
        while running:
            _report(wait(running, return_when=FIRST_COMPLETED).done, running, failures, on_done)
    if failures:
        raise LoweringError("\n".join(failures), failures=failures)


def _units(jobs: Sequence[Job]) -> list[list[Job]]:
    """Divide jobs among files, the largest first."""
    units: list[list[Job]] = []
    num_nodes = UNIT_NODES
    for job in sorted(jobs, key=lambda job: -len(job.body["nodes"])):
        num_nodes += len(job.body["nodes"])
        if num_nodes > UNIT_NODES:
            units.append([])
            num_nodes = len(job.body["nodes"])
        units[-1].append(job)
    return units


def _written(unit: Sequence[Job], failures: list[str]) -> list[Text]:
    """Return the C++ of the jobs that have one; the others go to `failures`."""
    from .generate import generate

    texts = []
    for job in unit:
        try:
            texts.append((job, generate(job.body, job.level, job.preparations)))
        except Exception as error:  # whatever Inductor raises for code that it cannot write
            failures.append(_failure(job.name, error))
    return texts


def _report(
    ended: Iterable[Future[object]],
    running: dict[Future[object], tuple[str, list[Job]]],
    failures: list[str],
    on_done: Callable[[Job], None],
) -> None:
    """Take finished jobs out of `running`, and log them."""
    for future in ended:
        names, jobs = running.pop(future)
        error = future.exception()
        if error is None:
            for job in jobs:
                on_done(job)
        elif isinstance(error, Exception):
            failures.append(_failure(names, error))
        else:
            raise error


def _failure(names: str, error: Exception) -> str:
    text = str(error).strip() if isinstance(error, NeuronError) else f"{type(error).__name__}: {error}".strip()
    return f"Host code for {names} could not be compiled: {_shortened(text)}. Use -O1, which compiles nothing."


def _shortened(text: str, first: int = 150, last: int = 600) -> str:
    """The kind of error is at the start, the compiler's words are at the end; its command line between is long."""
    return text if len(text) <= first + last else f"{text[:first]} ... {text[-last:]}"


def compile_unit(functions: Sequence[Text], command: Sequence[str], built: Path) -> None:
    """Compile the text of some jobs into one library and publish it.

    `command` compiles a file beside `built`, with the ending .cpp, into the library `built`.
    """
    from .wrapper import FUNCTION_NAME

    records = {job.record: job.name for job, _ in functions}
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
    from ...upstream.inductor import CppBuilder, CppTorchOptions, inductor_config, pick_vec_isa
    from .generate import inductor_options

    with inductor_config.patch(inductor_options("inductor")):
        options = CppTorchOptions(vec_isa=pick_vec_isa(), include_pytorch=False, warning_all=False)
        builder = CppBuilder(
            name=output.stem, sources=[str(source)], output_dir=str(output.parent), BuildOption=options
        )
        words = shlex.split(builder.get_command_line())
    # The code calls no Python and is not debugged.
    unneeded = ("-g1", "-ltorch_python")
    return [*(word for word in words if word not in unneeded), "-w", f"-I{HEADER.parent}"]
