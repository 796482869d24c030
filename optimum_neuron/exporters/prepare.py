"""From a checkpoint to a model loaded on a simulated core: compile or find, lower, bind, load, validate.

`prepare` does everything but saving, so `from_pretrained(export=True)` and `main_export` share it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import env
from ..atomic import replacing
from ..compiler.cache import CompileCache
from ..compiler.ir import Program
from ..compiler.lower.lower import HostCode, Mode, lower
from ..compiler.memory import MemoryNeed, memory_need
from ..compiler.neff import open_neff
from ..compiler.package import read_program
from ..core import Choice
from ..errors import ArtifactError, ConfigError, ValidationError, refusal
from ..hardware import Target, resolve_instance
from ..runtime.cores import CoreClaim
from ..runtime.loaded import LoadedProgram, load_program, require_fit, require_room
from ..runtime.private_core import PrivateCore
from ..weights import BoundWeights, TensorSource, bind_weights
from .build import cached_neff
from .kinds import kind_of
from .progress import Progress
from .source import ModelSource
from .tensors import load_original, open_tensors
from .validation import OutputError, Recorder, default_tolerance, validate

WORKDIR_FILE = "graph.neff"
"""Name of the program in a compiler's work folder, as in `torch_neuronx.trace`."""


class WorkFolder:
    """A temporary folder that goes with its last reference."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="optimum-neuron-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclasses.dataclass(kw_only=True)
class Prepared:
    """A compiled model, loaded where weights were there, with the story of how it came about."""

    source: ModelSource
    config: Any
    """Complete configuration, of the class that the task has."""
    target: Choice[Target]
    neff: Path
    cache: Choice[Path]
    program: Program
    metadata: dict[str, Any]
    need: MemoryNeed
    tensors: Choice[TensorSource] | None = None
    host: HostCode | None = None
    weights: BoundWeights | None = None
    loaded: LoadedProgram | None = None
    validation: list[OutputError] = dataclasses.field(default_factory=list)
    timings_s: dict[str, float] = dataclasses.field(default_factory=dict)
    workdir: WorkFolder | None = None
    """Holds a NEFF that is not cached for as long as this object lives."""

    @property
    def weight_sources(self) -> dict[str, tuple[str, ...]]:
        """Checkpoint tensors of each weight."""
        return {name: tuple(sources) for name, sources in self.metadata["weight_sources"].items()}

    @property
    def placement(self) -> dict[str, Any]:
        """Part of the FLOPs that the device runs, why, and the operators that the host runs."""
        return self.metadata["placement"]

    @property
    def family(self) -> str:
        """Implementation that was compiled."""
        return self.metadata["family"]["value"]

    def require_room(self, claim: CoreClaim | PrivateCore) -> None:
        """Check that the program fits on a core, before minutes are spent on host code.

        Raises:
            DeviceMemoryError: it does not fit.
        """
        require_fit(self.need, instance=claim.instance, target=self.target.value, model_name=self.source.name)
        require_room(self.need, claim)

    def load(self, core: int | None = None, *, claim: CoreClaim | PrivateCore | None = None) -> LoadedProgram:
        """Load the program with its weights and host code on a core.

        Args:
            core: counted from 0 among the cores that the process may use; None takes the least loaded.
            claim: the core, claimed before, in place of `core`.

        Raises:
            DeviceMemoryError, CoreBusyError: there is no room for it.
        """
        assert self.weights is not None and self.host is not None, "bound and lowered before"
        return load_program(
            self.program,
            self.weights.tensors,
            self.host,
            instance=resolve_instance(self.config.instance_type).value,
            target=self.target.value,
            model_name=self.source.name,
            core=core,
            claim=claim,
            auto_cast=self.config.auto_cast,
            task=self.config.task,
        )


def prepare(
    source: ModelSource,
    config: Any,
    target: Choice[Target],
    *,
    cache: CompileCache | None,
    validate: bool,
    atol: float | None = None,
    trust_remote_code: bool = False,
    host_code: Mode = "background",
    claim: CoreClaim | None = None,
    compiler_workdir: str | Path | None = None,
) -> Prepared:
    """Compile, load and validate a checkpoint.

    A folder without weights is compiled and not loaded. Without a `claim` the model is loaded on a private core, which
    is enough to validate it: exports hold no core. `host_code` says when code for this machine is compiled.
    `compiler_workdir` gets a copy of the NEFF, graph.neff.

    Raises:
        NeuronError: one of the refusals of the steps; see `errors.py`.
    """
    check_tolerance(atol, validate=validate)
    timings: dict[str, float] = {}
    workdir = WorkFolder()
    with contextlib.ExitStack() as stack:
        progress = stack.enter_context(Progress(f"Compiling {source.name} for {config.target}"))
        with _timed(timings, "compile"):
            cached = cached_neff(
                source,
                config,
                target.value,
                cache=cache,
                workdir=workdir.path,
                trust_remote_code=trust_remote_code,
                on_done=progress.captured,
            )
            prepared = _compiled(source, config, target, cached)
            if compiler_workdir is not None:
                _copy_neff(prepared.neff, Path(compiler_workdir))
        prepared.timings_s, prepared.workdir = timings, workdir
        if not source.has_weights:
            return prepared
        core = claim or PrivateCore(resolve_instance(config.instance_type).value, model=source.name)
        prepared.require_room(core)
        with _timed(timings, "host_code"):
            prepared.host = lower(
                prepared.program,
                optlevel=config.optlevel,
                mode=host_code,
                on_start=progress.start_lowering,
                on_done=progress.lowered,
            )
        with _timed(timings, "load"):
            _bind_weights(prepared, trust_remote_code)
            prepared.loaded = prepared.load(claim=core)
        if validate:
            progress.say("validating")
            with _timed(timings, "validate"):
                prepared.validation = _validate(prepared, atol, trust_remote_code)
    return prepared


def _compiled(source: ModelSource, config: Any, target: Choice[Target], neff_path: Choice[Path]) -> Prepared:
    with open_neff(neff_path.value) as neff:
        program, metadata = read_program(neff), dict(neff.metadata)
    return Prepared(
        source=source,
        config=config,
        target=target,
        neff=neff_path.value,
        cache=neff_path,
        program=program,
        metadata=metadata,
        need=memory_need(program, lnc=target.value.chip.default_lnc),
    )


def _copy_neff(neff: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(folder / WORKDIR_FILE, needed_bytes=neff.stat().st_size, error=ArtifactError) as file:
        file.write(neff.read_bytes())


def _bind_weights(prepared: Prepared, trust_remote_code: bool) -> None:
    prepared.tensors = open_tensors(
        prepared.source,
        prepared.weight_sources,
        task=prepared.config.task,
        family=prepared.family,
        dtype=prepared.config.torch_dtype,
        trust_remote_code=trust_remote_code,
    )
    prepared.weights = bind_weights(prepared.program.weights, prepared.weight_sources, prepared.tensors.value)


def _validate(prepared: Prepared, atol: float | None, trust_remote_code: bool) -> list[OutputError]:
    task = prepared.config.task
    needed = {name for sources in prepared.weight_sources.values() for name in sources}
    reference = load_original(
        prepared.source, task=task, dtype="float32", trust_remote_code=trust_remote_code, needed=needed
    )
    assert prepared.loaded is not None
    try:
        kind, recorder = kind_of(task, prepared.source.config.model_type), Recorder(prepared.loaded)
        reference = kind.prepare_reference(reference, prepared.config)
        with prepared.loaded.track.paused():
            return validate(
                kind.scenarios(recorder, reference, prepared.metadata, prepared.config),
                recorder,
                reference,
                tolerance=lambda largest: default_tolerance(prepared.config, largest) if atol is None else atol,
            )
    except ValidationError as error:
        prepared.loaded.close()
        error.details.update(auto_cast=prepared.config.auto_cast, torch_dtype=prepared.config.torch_dtype)
        raise
    except BaseException:
        prepared.loaded.close()
        raise


@contextlib.contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[name] = time.perf_counter() - start


def check_tolerance(atol: float | None, *, validate: bool) -> None:
    """Refuse a tolerance that nothing can pass or that nobody would use.

    Raises:
        ConfigError: it is negative or no number, or validation is switched off.
    """
    if atol is None:
        return
    if not validate:
        raise ConfigError(
            refusal(
                asked=f"atol={atol} with disable_validation",
                found="both",
                why="a tolerance is for the comparison that is switched off",
                do="pass one of them",
            )
        )
    if not 0 <= atol < math.inf:
        raise ConfigError(
            refusal(
                asked=f"atol={atol}",
                found="not a number of at least 0",
                why="it is the largest absolute difference that passes",
                do="pass for example atol=0.01",
            )
        )


def open_cache(disable_neuron_cache: bool, cache_url: str | None = None) -> CompileCache | None:
    """The compile cache, or None where it is switched off, by the argument or by --no_cache in NEURON_CC_FLAGS.

    Raises:
        ConfigError: it is switched off and named at once.
    """
    if disable_neuron_cache and cache_url is not None:
        raise ConfigError(
            refusal(
                asked=f"disable_neuron_cache with cache {cache_url}",
                found="both",
                why="a cache that is switched off is not read",
                do="pass one of them",
            )
        )
    return None if disable_neuron_cache or (cache_url is None and env.no_compile_cache()) else CompileCache(cache_url)
