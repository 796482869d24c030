"""Make every subprogram of a program callable: choose a level, compile what is missing, load.

Compiled code is made at once, in the background, or not at all (`Mode`); without it, subprograms run operator by
operator.

    host = lower(program, optlevel="2", mode="background")
    host.functions["sub_..."]([x, weight])
    host.current()      # the compiled code, once it is there
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from ...core import Choice, OptLevel, Rejected
from ...errors import LoweringError
from ..ir import Graph, Program
from ..serial import body_to_dict
from . import attention
from .aten import HostFunction, aten_function
from .background import Compiling, compile_in_background
from .choose import HostLevel, choose_level, probe_compiler, probe_cpu
from .library import load_function
from .prepare import NOTHING, Preparations, plan_preparations
from .store import locate, record_path
from .unit import Job, compile_jobs

Mode = Literal["wait", "background", "stored"]
"""When code that the store lacks is compiled: before anything runs, while operators run one by one, or never."""

logger = logging.getLogger(__name__)

Choices = Mapping[str, Choice[HostLevel]]


@dataclasses.dataclass(kw_only=True)
class HostCode:
    """Callable subprograms and how each one came to be."""

    functions: dict[str, HostFunction]
    """Subprogram name to host function."""
    choices: Choices
    """Subprogram name to its level and the reason."""
    preparations: Preparations = NOTHING
    """What the functions expect of the weights."""
    num_compiled: int = 0
    """Subprograms that were compiled for this; the others were in the store or need no compiling."""
    compiling: Compiling | None = None
    """What is being compiled to take the place of this."""
    _successor: HostCode | None = None

    def current(self) -> HostCode:
        """Return the compiled code that took the place of this, or this."""
        return self if self._successor is None else self._successor

    def when_compiled(self, callback: Callable[[HostCode], None]) -> None:
        """Have a function called with the compiled code, in another thread; never, if it cannot be compiled."""
        if self.compiling is not None:
            self.compiling.on_end(lambda: callback(self._successor) if self._successor is not None else None)

    def wait(self, timeout_s: float | None = None) -> HostCode:
        """Wait for the compiled code and return it, or this after `timeout_s`.

        Raises:
            LoweringError: it could not be compiled.
        """
        if self.compiling is not None and self.compiling.wait(timeout_s) and self._successor is None:
            raise LoweringError("\n".join(self.compiling.failures), details={"failures": self.compiling.failures})
        return self.current()

    def describe(self) -> Choice[str]:
        """Return the levels in use, with the reasons and the progress of what is being compiled."""
        code, compiling = self.current(), self.compiling
        value = ", ".join(sorted({str(choice.value) for choice in code.choices.values()})) or "none"
        reasons = sorted({f"{choice.value}: {choice.reason}" for choice in code.choices.values()})
        if compiling is not None and code is self:
            state = (
                "; ".join(compiling.failures) or f"{compiling.num_done} of {len(compiling.jobs)} blocks are compiled"
            )
            reasons.append(state)
        elif compiling is not None:
            reasons.append(f"compiled in the background in {compiling.seconds:.1f} s")
        return Choice(value=value, reason="; ".join(reasons) or "no weights to run with")


def choose_levels(program: Program, *, optlevel: OptLevel) -> dict[str, Choice[HostLevel]]:
    """Decide the host code of every subprogram."""
    compiler = probe_compiler()
    hot = {call.subprogram for graph in program.graphs.values() if not graph.rare for call in graph.calls}
    per_token = {call.subprogram for graph in program.graphs.values() if _is_step(graph) for call in graph.calls}
    return {
        name: choose_level(
            subprogram, optlevel=optlevel, compiler=compiler, rare=name not in hot, per_token=name in per_token
        )
        for name, subprogram in program.subprograms.items()
    }


def _is_step(graph: Graph) -> bool:
    """Whether a graph takes one token of each row: the shape [rows, 1] that generation repeats."""
    first = next(iter(graph.inputs.values()), None)
    return first is not None and len(first.shape) == 2 and first.shape[1] == 1


def lower(
    program: Program,
    *,
    optlevel: OptLevel,
    mode: Mode = "wait",
    on_start: Callable[[int], None] = lambda num_jobs: None,
    on_done: Callable[[Job], None] = lambda job: None,
    root: Path | None = None,
) -> HostCode:
    """Return host functions for all subprograms of `program`.

    Args:
        program: what has to run.
        optlevel: "1", "2" or "3".
        mode: when code that the store lacks is compiled.
        on_start: called with the number of subprograms that are compiled before this returns.
        on_done: called after each of them, for progress.
        root: folder of the host-code store.

    Raises:
        LoweringError: a subprogram could not be compiled, or other users can change its code.
    """
    choices = choose_levels(program, optlevel=optlevel)
    compiled = [name for name, choice in choices.items() if choice.value != "aten"]
    preparations = plan_preparations(program, compiled)
    jobs = missing_jobs(program, choices, preparations, root)
    if not jobs:
        return _loaded(program, choices, preparations, root)
    if mode == "wait":
        on_start(len(jobs))
        kernel = threading.Thread(target=_build_attention, args=(program, choices), name="attention")
        kernel.start()
        compile_jobs(jobs, num_compilers=os.cpu_count() or 1, on_done=on_done)
        kernel.join()
        return dataclasses.replace(_loaded(program, choices, preparations, root), num_compiled=len(jobs))
    plain = HostCode(
        functions={name: aten_function(sub.body) for name, sub in program.subprograms.items()},
        choices={name: _until_compiled(choice, mode) for name, choice in choices.items()},
    )
    if mode == "background":
        plain.compiling = compile_in_background(jobs)
        plain.compiling.on_end(lambda: _succeed(plain, program, choices, preparations, root))
    return plain


def _until_compiled(choice: Choice[HostLevel], mode: Mode) -> Choice[HostLevel]:
    if choice.value == "aten":
        return choice
    reason = "runs operator by operator " + (
        "until it is compiled" if mode == "background" else "because its code is not in the store"
    )
    return Choice(value="aten", reason=reason, rejected=(Rejected(candidate=choice.value, reason=choice.reason),))


def _succeed(
    plain: HostCode, program: Program, choices: Choices, preparations: Preparations, root: Path | None
) -> None:
    compiling = plain.compiling
    assert compiling is not None
    if not compiling.failures:
        code = _loaded(program, choices, preparations, root)
        plain._successor = dataclasses.replace(code, num_compiled=len(compiling.jobs), compiling=compiling)
    elif not compiling.cancelled:
        logger.warning("A model keeps running operator by operator. %s", " ".join(compiling.failures))


def missing_jobs(
    program: Program, choices: Choices, preparations: Preparations = NOTHING, root: Path | None = None
) -> list[Job]:
    """Return the subprograms that are not in the store."""
    features, jobs = probe_cpu(), []
    for name, choice in choices.items():
        expected = preparations.of_subprogram.get(name, ())
        record = record_path(name, choice.value, features, root, expected)
        if choice.value != "aten" and locate(record) is None:
            body = body_to_dict(program.subprograms[name].body)
            jobs.append(Job(body=body, level=choice.value, record=record, preparations=expected))
    return jobs


def _needs_attention(program: Program, choices: Choices) -> bool:
    compiled = [program.subprograms[name].body for name, choice in choices.items() if choice.value != "aten"]
    return any(attention.is_in(body, probe_cpu()) for body in compiled)


def _build_attention(program: Program, choices: Choices) -> None:
    """Build the kernel beside the blocks that call it; loading them reports what fails."""
    if _needs_attention(program, choices):
        with contextlib.suppress(LoweringError):
            attention.library(probe_cpu().isa).ensure_built()


def _loaded(program: Program, choices: Choices, preparations: Preparations, root: Path | None) -> HostCode:
    features = probe_cpu()
    if _needs_attention(program, choices):
        attention.load(features.isa)  # their code looks its function up when it is loaded
    functions: dict[str, HostFunction] = {}
    for name, choice in choices.items():
        subprogram = program.subprograms[name]
        if choice.value == "aten":
            functions[name] = aten_function(subprogram.body)
            continue
        stored = locate(record_path(name, choice.value, features, root, preparations.of_subprogram.get(name, ())))
        if stored is None:
            raise LoweringError(f"Host code of {name} was removed while it was loaded. Load the model again.")
        functions[name] = load_function(stored, len(subprogram.outputs))
    return HostCode(functions=functions, choices=choices, preparations=preparations)
