"""From a checkpoint to a model loaded on a simulated core: compile or find, lower, bind, load, validate.

`prepare` does everything but saving, so `from_pretrained(export=True)` and `main_export` share it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..artifact import Artifact, open_artifact
from ..base.core import Choice
from ..base.progress import Progress
from ..compiler.cache import CompileCache
from ..compiler.lower import Mode, compile_later, lower
from ..errors import ArtifactError, ConfigError, WeightsError
from ..files.atomic import WorkFolder, replacing
from ..hardware import Target, resolve_instance
from ..options.configuration import CompileConfig
from ..runtime import CoreClaim, PrivateCore
from ..sources import ModelSource, check_files, open_tensors, with_head
from ..weights import TensorSource
from .build import cached_neff
from .prepared import Prepared
from .validation import validated

WORKDIR_FILE = "graph.neff"
"""Name of the program in a compiler's work folder, as in `torch_neuronx.trace`."""


def prepare(
    source: ModelSource,
    config: CompileConfig,
    target: Choice[Target],
    *,
    cache: CompileCache | None,
    validate: bool,
    atol: float | None = None,
    trust_remote_code: bool = False,
    host_code: Mode = "background",
    claim: CoreClaim | None = None,
    compiler_workdir: str | Path | None = None,
    fill_head: bool = True,
) -> Prepared:
    """Compile, load and validate a checkpoint.

    A folder without weights is compiled and not loaded. Without a `claim` the model is loaded on a private core, which
    is enough to validate it: exports hold no core. `host_code` says when code for this machine is compiled.
    `compiler_workdir` gets a copy of the NEFF, graph.neff. A head that the checkpoint lacks is filled with random
    numbers and a warning, unless `fill_head` is False.

    Raises:
        NeuronError: an error of one of the steps; see `errors.py`.
    """
    check_tolerance(atol, validate=validate)
    check_files(source)  # before minutes are spent
    timings: dict[str, float] = {}
    with Progress(f"Compiling {source.name} for {config.target}") as progress, before_host_code(validate):
        with _timed(timings, "compile"):
            work = WorkFolder()
            neff = cached_neff(
                source,
                config,
                target.value,
                cache=cache,
                workdir=work.path,
                trust_remote_code=trust_remote_code,
                on_done=progress.captured,
            )
            artifact = open_artifact(neff.value)
            _copy_neff(artifact.path, compiler_workdir)
        prepared = Prepared(
            source=source, config=config, target=target, artifact=artifact, cache=neff, timings_s=timings, workdir=work
        )
        if not source.has_weights:
            return prepared
        instance, num_cores = resolve_instance(config.instance_type).value, artifact.num_cores.value
        core = claim or PrivateCore(instance, model=source.name, num_cores=num_cores)
        prepared.require_room(core)
        with _timed(timings, "load"):  # before host code is made: a tensor that is missing is an error at once
            source, tensors = _open_tensors(source, config, artifact, trust_remote_code, fill_head=fill_head)
            weights = artifact.bind(tensors.value)
        with _timed(timings, "host_code"):
            host = lower(
                artifact.host_program,
                optlevel=config.optlevel,
                mode=host_code,
                on_start=progress.start_lowering,
                on_done=lambda job: progress.lowered(job.name),
            )
        with _timed(timings, "load"):
            prepared = dataclasses.replace(prepared, source=source).on_core(tensors, weights, host, core)
        if validate:
            progress.validating(source.name)
            with _timed(timings, "validate"):
                prepared = _validated(prepared, atol, trust_remote_code, remember=cache is not None)
    return prepared


def _validated(prepared: Prepared, atol: float | None, trust_remote_code: bool, *, remember: bool) -> Prepared:
    """Return a loaded model with its comparison with the reference model; if that fails, its core is free again."""
    assert prepared.bound is not None and prepared.loaded is not None
    try:
        errors, quality, choice = validated(
            prepared.source,
            prepared.config,
            prepared.bound,
            prepared.loaded,
            atol=atol,
            trust_remote_code=trust_remote_code,
            remember=remember,
        )
    except BaseException:
        prepared.loaded.close()
        raise
    return dataclasses.replace(prepared, validation=errors, quality=quality, validated=choice)


def before_host_code(validate: bool) -> contextlib.AbstractContextManager[None]:
    """Return a context in which host code waits for a validation: the first answer needs the validation only."""
    return compile_later() if validate else contextlib.nullcontext()


def _open_tensors(
    source: ModelSource, config: CompileConfig, artifact: Artifact, trust_remote_code: bool, *, fill_head: bool
) -> tuple[ModelSource, Choice[TensorSource]]:
    """Return the tensors of a checkpoint, and the checkpoint, whose head may have been filled."""
    how: dict[str, Any] = {
        "task": config.task,
        "dtype": config.torch_dtype,
        "trust_remote_code": trust_remote_code,
    }
    try:
        return source, open_tensors(source, sources=artifact.weight_sources, **how)
    except WeightsError as error:
        if not fill_head:
            raise
        source = with_head(source, error, **how)
    return source, open_tensors(source, sources=artifact.weight_sources, **how)


def _copy_neff(neff: Path, folder: str | Path | None) -> None:
    if folder is None:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    with replacing(Path(folder) / WORKDIR_FILE, needed_bytes=neff.stat().st_size, error=ArtifactError) as file:
        file.write(neff.read_bytes())


@contextlib.contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    timings[name] = timings.get(name, 0.0) + time.perf_counter() - start


def check_tolerance(atol: float | None, *, validate: bool) -> None:
    """Check a tolerance."""
    if atol is None:
        return
    if not validate:
        message = f"atol={atol} has no effect: disable_validation switches the comparison off."
        raise ConfigError(message, hint="Remove one of the two.", option="atol", value=atol)
    if not 0 <= atol < math.inf:
        message = f"atol={atol} is not a number of at least 0."
        raise ConfigError(message, hint="Pass for example atol=0.01.", option="atol", value=atol)
