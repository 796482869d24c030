"""The one reader of NEFFs that hold a program: exports and traces write them, simulators and profilers read them.

`Artifact` is the program without weights, and `BoundProgram` one that any number of cores can load. Both are made once
and never change.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from ..base.core import AutoCast, Choice
from ..base.wording import size
from ..compiler import WEIGHTS_MEMBER, Program, divided_prompts, read_program
from ..compiler.lower import HostCode
from ..compiler.neff import Neff, check_target, open_neff
from ..compiler.passes import stage_programs, unroll, without_sends
from ..hardware import InstanceSpec, Target
from ..runtime import CoreClaim, LoadedProgram, PrivateCore, load_program
from ..weights import BoundWeights, Checkpoint, MappedFile, Shards, TensorSource, bind_weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """A compiled program, read from its NEFF and checked."""

    neff: Neff
    """Closed container, for its header and document."""
    program: Program
    """Entry points and subprograms, without weights."""
    inlined: memoryview | None
    """Safetensors bytes of the weights inside the NEFF; None if the weights are elsewhere."""

    @property
    def path(self) -> Path:
        return self.neff.path

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """Facts that the writer stored beside the program."""
        return dict(self.neff.metadata)

    @functools.cached_property
    def weight_sources(self) -> dict[str, tuple[str, ...]]:
        """Checkpoint tensors that make each weight."""
        return {name: tuple(sources) for name, sources in self.metadata["weight_sources"].items()}

    @functools.cached_property
    def shards(self) -> Shards:
        """Weights that are divided among cores."""
        return Shards.from_dict(self.metadata["shards"]) if "shards" in self.metadata else Shards()

    @functools.cached_property
    def num_cores(self) -> Choice[int]:
        """Cores of the model, and what each has of it."""
        return core_count(self.program, self.shards)

    @functools.cached_property
    def host_program(self) -> Program:
        """Program that the host runs; if the model has several cores, the program of all of them."""
        program = without_sends(self.program)
        return program if self.shards.group_size == 1 else unroll(program, self.shards)

    def require_target(self, target: Target) -> None:
        """Check that a target runs the program."""
        check_target(self.neff, target.name, target.core.generation)

    def inlined_weights(self) -> Choice[TensorSource] | None:
        """Return the tensors inside the NEFF, or None if they are elsewhere."""
        if self.inlined is None:
            return None
        tensors = Checkpoint([MappedFile(self.inlined, str(self.path))], str(self.path))
        return Choice(value=tensors, reason="mapped from inside the NEFF")

    def bind(self, tensors: TensorSource) -> BoundWeights:
        """Return a tensor for every weight of the program."""
        return bind_weights(self.program.weights, self.weight_sources, tensors, self.shards)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundProgram:
    """A program with weights and host code, ready for any number of cores."""

    artifact: Artifact
    tensors: Choice[TensorSource]
    """Source of the weights, and why."""
    weights: BoundWeights
    """One tensor for each weight of the program."""
    host: HostCode
    """Functions that compute the subprograms on this machine."""
    model_name: str
    """Name for messages, also to other processes that find the core busy."""
    instance: InstanceSpec
    target: Target
    auto_cast: AutoCast = "none"
    """Rounding that was compiled in, for the simulated time."""
    task: str | None = None
    """Task of the model, for the interval of the simulated time; None if unknown."""

    def load(self, core: int | None = None, *, claim: CoreClaim | PrivateCore | None = None) -> LoadedProgram:
        """Load the program on a core.

        Args:
            core: counted from 0 among the cores that the process may use; None takes the least loaded.
            claim: a core that is claimed already, in place of `core`.
        """
        return load_program(
            self.artifact.program,
            self.weights.tensors,
            self.host,
            host_program=self.artifact.host_program,
            num_cores=self.artifact.num_cores.value,
            instance=self.instance,
            target=self.target,
            model_name=self.model_name,
            core=core,
            claim=claim,
            auto_cast=self.auto_cast,
            task=self.task,
        )


def read_artifact(neff: Neff, *, target: Target | None = None) -> Artifact:
    """Read the program of an open NEFF, which may be closed afterwards; a target, if one is given, must run it."""
    if target is not None:
        check_target(neff, target.name, target.core.generation)
    inlined = neff.read(WEIGHTS_MEMBER) if WEIGHTS_MEMBER in neff.names else None
    return Artifact(neff=neff, program=read_program(neff), inlined=inlined)


def open_artifact(path: str | Path, *, target: Target | None = None) -> Artifact:
    """Read the program of a NEFF file; see `read_artifact`.

    Example:
        ```python no-run
        from optimum_neuron.artifact import open_artifact

        print(list(open_artifact("smollm2_neuron/model.neuron").program.graphs))
        ```
    """
    with open_neff(path) as neff:
        return read_artifact(neff, target=target)


ONE_CORE = "default: a model is divided among cores only where tensor_parallel_size or pipeline_parallel_size says so"
"""Why a model runs on one core."""


def core_count(program: Program, shards: Shards) -> Choice[int]:
    """Return the number of cores that a program runs on, with the memory that each of them has.

    Args:
        program: that of one core of each stage.
    """
    stages, reasons = stage_programs(program), []
    totals = [sum(spec.size_bytes for spec in stage.weights.values()) for stage in stages]
    fullest = stages[totals.index(max(totals))].weights
    if len(stages) > 1:
        each = f"a core has {size(min(totals))} to {size(max(totals))} of weights, and the cache of its layers"
        reasons.append(f"pipeline_parallel_size: {len(stages)} stages; {each}")
    if shards.group_size > 1:
        part = sum(spec.size_bytes for name, spec in fullest.items() if name in shards.of_weights)
        state = ", and its part of the cache" if program.states else ""
        where = "each core has" if len(stages) == 1 else "each core of the fullest stage has"
        reasons.append(
            f"tensor_parallel_size: {where} its part of the divided weights ({size(part)}), all of the others "
            f"({size(max(totals) - part)}){state}"
        )
        if graphs := divided_prompts(program):
            reasons.append(f"sequence_parallel: {', '.join(graphs)}")
    return Choice(value=len(stages) * shards.group_size, reason="; ".join(reasons) or ONE_CORE)
