"""Make every subprogram of a program callable: choose a level, compile missing code, load.

Compiled code is made at once, in the background, or not at all (`Mode`); without it, subprograms run operator by
operator.

    host = lower(program, optlevel="2", mode="background")
    host.functions["sub_..."]([x, weight])
    host.current()      # the compiled code, once it is there

The local host-code store has compiled functions by content, CPU, torch version and generator (`record_path`, `locate`).
Nothing in it comes from an artifact: it is written only by `unit.compile_unit` on this machine. Losing it costs compile
time and nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import torch

from ...base import env
from ...base.core import Choice, OptLevel, Rejected
from ...base.wording import counted, time_span
from ...errors import LoweringError
from ...files.records import hash_of_sources
from ...files.shared_objects import SharedObject, find, require_ours, writable
from ..ir import Graph, Program
from ..serialize import body_from_dict, body_to_dict
from .aten import HostFunction, aten_function
from .background import Compiling, compile_in_background
from .choose import CpuFeatures, HostLevel, choose_level, probe_compiler, probe_cpu
from .kernels import KERNELS
from .library import load_function
from .panels import readers
from .prepare import NOTHING, Preparation, Preparations, plan_preparations
from .unit import Job, compile_jobs

Mode = Literal["wait", "background", "stored"]
"""When missing code is compiled: before anything runs, while operators run eagerly, or never."""

_UNTIL: Mapping[Mode, str] = {
    "background": "runs operator by operator until it is compiled",
    "stored": "runs operator by operator because its code is not in the store",
}
"""Reasons of a block that has no compiled code."""

logger = logging.getLogger(__name__)

Choices = Mapping[str, Choice[HostLevel]]


@dataclasses.dataclass(kw_only=True)
class HostCode:
    """Callable subprograms and how each one came to be."""

    functions: dict[str, HostFunction]
    choices: Choices
    """Subprogram name to its level and the reason."""
    preparations: Preparations = NOTHING
    """Preparations that the functions expect of the weights."""
    num_compiled: int = 0
    """Subprograms that were compiled for this; the others were in the store or need no compiling."""
    compiling: Compiling | None = None
    """Replacement that is being compiled."""
    _successor: HostCode | None = None

    @property
    def levels(self) -> str:
        """Levels of the functions, in words."""
        return ", ".join(sorted({str(choice.value) for choice in self.choices.values()})) or "none"

    def current(self) -> HostCode:
        """Return the compiled code that took the place of this, or this."""
        return self if self._successor is None else self._successor

    def when_compiled(self, callback: Callable[[HostCode], None]) -> None:
        """Have a function called with the compiled code, in another thread; never, if it cannot be compiled."""
        if self.compiling is not None:
            self.compiling.on_end(lambda: callback(self._successor) if self._successor is not None else None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the compiled code is there; return whether it is, after `timeout_s` at the latest."""
        if self.compiling is None:
            return True
        if not self.compiling.wait(timeout_s):
            return False
        if self._successor is None:
            raise LoweringError("\n".join(self.compiling.failures), failures=self.compiling.failures)
        return True

    def describe(self) -> Choice[str]:
        """Return the levels in use, and how many blocks are compiled; `choices` has the reason of each block."""
        code, compiling = self.current(), self.compiling
        levels = [str(choice.value) for choice in code.choices.values()]
        reasons = {choice.reason for choice in code.choices.values()}
        reason = f"{sum(level != 'aten' for level in levels)} of {counted(len(levels), 'block')} compiled"
        if not levels:
            reason = "no weights to run with"
        elif compiling is not None and code is self:
            done = f"{compiling.num_done} of {counted(len(compiling.jobs), 'block')}"
            reason = "; ".join(compiling.failures) or f"{_UNTIL['background']} ({done})"
        elif compiling is not None and compiling.seconds is not None:
            reason += f" in the background, {time_span(compiling.seconds)}"
        elif len(reasons) == 1:
            reason = f"{levels[0]}: {reasons.pop()}"
        elif _UNTIL["stored"] in reasons:
            reason = _UNTIL["stored"]
        return Choice(value=code.levels, reason=reason)


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
    """Return whether a graph takes one token of each row: the shape [rows, 1] that generation repeats."""
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
        optlevel: "1", "2" or "3".
        on_start: called with the number of subprograms that are compiled before this returns.
        on_done: called after each of them, for progress.
    """
    code = _Code(program, choose_levels(program, optlevel=optlevel), root)
    if not code.missing:
        return code.loaded()
    if mode == "wait":
        on_start(len(code.missing))
        compile_jobs(code.jobs(), num_compilers=os.cpu_count() or 1, on_done=on_done)
        return code.loaded(num_compiled=len(code.missing))
    plain = HostCode(
        functions={name: code.by_operators(name) for name in program.subprograms},
        choices={name: _until_compiled(choice, mode) for name, choice in code.choices.items()},
    )
    if mode == "background":
        plain.compiling = compile_in_background(code.jobs())
        plain.compiling.on_end(lambda: _succeed(plain, code))
    return plain


def _until_compiled(choice: Choice[HostLevel], mode: Mode) -> Choice[HostLevel]:
    if choice.value == "aten":
        return choice
    return Choice(value="aten", reason=_UNTIL[mode], rejected=(Rejected(candidate=choice.value, reason=choice.reason),))


def _succeed(plain: HostCode, code: _Code) -> None:
    compiling = plain.compiling
    assert compiling is not None
    if not compiling.failures:
        plain._successor = code.loaded(num_compiled=len(compiling.jobs))
    elif not compiling.cancelled:
        logger.warning("A model keeps running operator by operator. %s", " ".join(compiling.failures))


class _Code:
    """Compiled code of a program: some is in the store, the rest becomes jobs."""

    def __init__(self, program: Program, choices: Choices, root: Path | None) -> None:
        compiled = [name for name, choice in choices.items() if choice.value != "aten"]
        self.program, self.choices = program, choices
        self.preparations = plan_preparations(program, compiled)
        self._expected = {name: self.preparations.of_subprogram.get(name, ()) for name in compiled}
        self._records = {
            name: record_path(name, choices[name].value, probe_cpu(), root, expected)
            for name, expected in self._expected.items()
        }
        self._stored = {name: stored for name, record in self._records.items() if (stored := locate(record))}
        self.missing = [name for name in compiled if name not in self._stored]
        """Subprograms to compile."""
        self._by_operators: dict[str, HostFunction] = {}

    def by_operators(self, name: str) -> HostFunction:
        """Return a subprogram that runs operator by operator; the same one each time."""
        if name not in self._by_operators:
            self._by_operators[name] = aten_function(self.program.subprograms[name].body)
        return self._by_operators[name]

    def _by_operators_with_panels(self, name: str) -> HostFunction:
        """Return a subprogram that runs operator by operator on the prepared weights."""
        positions = [one.targets[0] for one in self.preparations.of_subprogram.get(name, ())]
        if not positions:
            return self.by_operators(name)
        body = body_from_dict(body_to_dict(self.program.subprograms[name].body))
        readers.take_panels(body, positions)
        return aten_function(body)

    def jobs(self) -> list[Job]:
        """Return a job for each missing subprogram."""
        return [
            Job(
                body=body_to_dict(self.program.subprograms[name].body),
                level=self.choices[name].value,
                record=writable(self._records[name]),
                preparations=self._expected[name],
            )
            for name in self.missing
        ]

    def loaded(self, num_compiled: int = 0) -> HostCode:
        """Load the code; all of it is in the store."""
        features, subprograms = probe_cpu(), self.program.subprograms
        for kind in {one.kind for one in self.preparations.of_weights} & {*readers.KERNELS}:
            readers.KERNELS[kind].load(features.isa)
        for kernel in KERNELS:
            is_called = any(kernel.is_in(subprograms[name].body, features) for name in self._records)
            # A file of the store also has functions of other programs, which may call more kernels.
            if is_called or (self._records and kernel.is_built(features.isa)):
                kernel.load(features.isa)  # their code looks its function up when it is loaded
        functions: dict[str, HostFunction] = {}
        for name, subprogram in subprograms.items():
            record = self._records.get(name)
            if record is None:
                functions[name] = self._by_operators_with_panels(name)
                continue
            stored = self._stored.get(name) or locate(record)
            if stored is None:
                message = f"Host code of {name} was removed while it was loaded."
                raise LoweringError(message, hint="Load the model again.")
            # The templates of "inductor-max" count on the number of threads that they were compiled for.
            any_num_threads = self.choices[name].value == "inductor"
            functions[name] = load_function(stored, len(subprogram.outputs), any_num_threads=any_num_threads)
        return HostCode(
            functions=functions, choices=self.choices, preparations=self.preparations, num_compiled=num_compiled
        )


@functools.cache
def generator_hash() -> str:
    """Return a hash that changes whenever the code that writes host code changes."""
    return hash_of_sources(Path(__file__).parent, ["."], suffixes=(".py", ".h", ".cpp"))[:8]


def record_path(
    subprogram: str,
    level: HostLevel,
    features: CpuFeatures,
    root: Path | None = None,
    preparations: tuple[Preparation, ...] = (),
) -> Path:
    """Return where the record of a subprogram's host code is, or would be, kept.

    Args:
        subprogram: name of the subprogram, which is the hash of its content.
        root: folder of the store; the package's own cache folder by default.
        preparations: Preparations that it expects of its weights.
    """
    folder = (root or env.home() / "host") / f"torch{torch.__version__.replace('+', '-')}-{features}"
    expected = json.dumps([one.to_list() for one in preparations])
    suffix = f"-{hashlib.sha256(expected.encode()).hexdigest()[:8]}" if preparations else ""
    return folder / f"{subprogram}-{level}-t{torch.get_num_threads()}-{generator_hash()}{suffix}.json"


def locate(record: Path) -> SharedObject | None:
    """Return the compiled function of a record, or None where it has to be compiled."""
    stored = find(record)
    if stored is not None:
        require_ours(stored.library)
    return stored
