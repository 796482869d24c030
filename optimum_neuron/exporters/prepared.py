"""A compiled model with the record of its compile: what `prepare.py` returns, and folders and models are made of.

`Progress` shows the steps of such a compile on stderr, one line each; the Hub's switch for progress bars disables it.
`watching` reports the same steps to a server.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact import Artifact, BoundProgram
from ..base.core import Choice
from ..base.progress import Step
from ..base.wording import counted
from ..compiler import MemoryNeed, Program, fullest_need, stage_needs
from ..compiler.lower import HostCode
from ..hardware import Target, resolve_instance
from ..options.configuration import CompileConfig
from ..runtime import CoreClaim, LoadedProgram, PrivateCore, require_fit, require_room
from ..sources import ModelSource
from ..weights import BoundWeights, TensorSource
from .validation import OutputError

if TYPE_CHECKING:
    from ..compiler.lower import Compiling, Job
    from .quality import Quality


class WorkFolder:
    """A temporary folder that goes with its last reference."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="optimum-neuron-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A compiled model with the record of its compile; bound to weights and loaded if the checkpoint has weights."""

    source: ModelSource
    config: CompileConfig
    """Complete configuration, of the class that the task has."""
    target: Choice[Target]
    artifact: Artifact
    """The program and its NEFF."""
    cache: Choice[Path]
    """The NEFF, and whether it was compiled or found."""
    bound: BoundProgram | None = None
    """The program with its weights; None for a checkpoint without weights."""
    loaded: LoadedProgram | None = None
    """The program on the core that it was first loaded on."""
    validation: Sequence[OutputError] = ()
    """Differences from the reference model, of the weights that were exported."""
    validated: Choice[str] = Choice(value="off", reason="validation is switched off")
    """Whether they were "compared" now, or are "recorded" from an earlier comparison."""
    quality: Quality | None = None
    """Distance of a quantized model from the original on a text, where it was measured."""
    timings_s: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Seconds of each step."""
    workdir: WorkFolder | None = None
    """Holds a NEFF that is not cached for as long as this object lives."""

    @property
    def program(self) -> Program:
        return self.artifact.program

    @property
    def metadata(self) -> dict[str, Any]:
        """Facts in the NEFF besides the program."""
        return self.artifact.metadata

    @property
    def weight_sources(self) -> dict[str, tuple[str, ...]]:
        """Checkpoint tensors of each weight."""
        return self.artifact.weight_sources

    @property
    def host(self) -> HostCode | None:
        """Host code, where there are weights to run with."""
        return self.bound.host if self.bound else None

    @property
    def tensors(self) -> Choice[TensorSource] | None:
        """Tensors that the weights come from."""
        return self.bound.tensors if self.bound else None

    @functools.cached_property
    def needs(self) -> tuple[MemoryNeed, ...]:
        """HBM that the program takes on each core of a pipeline stage, by stage."""
        return stage_needs(self.program, self.target.value)

    @property
    def need(self) -> MemoryNeed:
        """HBM that it takes on a core of the fullest stage."""
        return fullest_need(self.needs)

    @property
    def placement(self) -> dict[str, Any]:
        """Part of the FLOPs that the device runs, why, and the operators that the host runs."""
        return self.metadata["placement"]

    @property
    def family(self) -> str:
        """Implementation that was compiled."""
        return self.metadata["family"]["value"]

    def require_room(self, claim: CoreClaim | PrivateCore) -> None:
        """Check that the program fits on a core, before minutes are spent on host code."""
        require_fit(
            self.needs,
            instance=claim.instance,
            target=self.target.value,
            model_name=self.source.name,
            num_cores=self.artifact.num_cores.value,
            program=self.program,
        )
        require_room(self.needs, claim)

    def on_core(
        self, tensors: Choice[TensorSource], weights: BoundWeights, host: HostCode, claim: CoreClaim | PrivateCore
    ) -> Prepared:
        """Return the model with its weights, loaded on a claimed core."""
        bound = BoundProgram(
            artifact=self.artifact,
            tensors=tensors,
            weights=weights,
            host=host,
            model_name=self.source.name,
            instance=resolve_instance(self.config.instance_type).value,
            target=self.target.value,
            auto_cast=self.config.auto_cast,
            task=self.config.task,
        )
        return dataclasses.replace(self, bound=bound, loaded=bound.load(claim=claim))


_WATCHER: contextvars.ContextVar[Callable[[Progress], None] | None] = contextvars.ContextVar("watcher", default=None)


@contextlib.contextmanager
def watching(watcher: Callable[[Progress], None]) -> Iterator[None]:
    """Call a function at each step of the exports of this thread inside."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def follow(compiling: Compiling, title: str) -> None:
    """Show the progress of background compilation on stderr until it ends."""
    blocks = counted(len(compiling.jobs), "block")
    with Step(title) as step:
        step.note(blocks)
        while not compiling.wait(0.5):
            step.show(f"{compiling.num_done} of {blocks}")


class Progress:
    """Steps of an export: graphs are captured, host code is compiled, results are compared."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._line: Step | None = None
        self._watcher = _WATCHER.get()
        self.step = ""
        """Newest step."""
        self.num_done = self.num_steps = 0

    def captured(self, name: str) -> None:
        """An entry point was captured."""
        if self._line is None:
            self._line = Step(self._title)
        self._note(f"captured {name}", more=1, done=1)
        self._line.note(counted(self.num_done, "graph"))
        self._line.show(f"captured {name}")

    def start_lowering(self, num_jobs: int) -> None:
        """Host code of some blocks has to be compiled."""
        what = f"compiling {counted(num_jobs, 'block')} with C++"
        self._note(what, more=num_jobs)
        self._next(f"{self._title}, host code").note(counted(num_jobs, "block"))

    def lowered(self, job: Job) -> None:
        """Host code of one block is ready."""
        self._note(f"compiled {job.name}", done=1)
        if self._line is not None:
            self._line.show(f"{self.num_done} of {counted(self.num_steps, 'step')}")

    def validating(self, name: str) -> None:
        """The compiled model is compared with the reference model."""
        self._note("validating")
        self._next(f"Comparing {name} with the reference model")

    def _next(self, title: str) -> Step:
        """End the line of the step before."""
        if self._line is not None:
            self._line.end()
        self._line = Step(title)
        return self._line

    def _note(self, what: str, more: int = 0, done: int = 0) -> None:
        self.step, self.num_steps, self.num_done = what, self.num_steps + more, self.num_done + done
        if self._watcher is not None:
            self._watcher(self)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        if self._line is not None:
            self._line.end(failed=kind is not None)
