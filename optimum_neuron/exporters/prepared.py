"""A compiled model with the record of its compile: what `prepare.py` returns, and folders and models are made of."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..artifact import Artifact, BoundProgram
from ..base.core import Choice
from ..compiler import MemoryNeed, Program, fullest_need, stage_needs
from ..compiler.lower import HostCode
from ..files.atomic import WorkFolder
from ..hardware import Target, resolve_instance
from ..options.configuration import CompileConfig
from ..runtime import CoreClaim, LoadedProgram, PrivateCore, require_fit, require_room
from ..sources import ModelSource
from ..weights import BoundWeights, TensorSource
from .validation import OutputError, Quality


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
