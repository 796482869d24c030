"""Graphs of a configuration as an export would compile them, without weights and without host code.

captured = capture_model(source, sequence_length=128)
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ..base.core import Choice
from ..base.progress import Progress
from ..errors import ConfigError
from ..hardware import legal_core_counts
from .machine import Machine, require_tensor_parallel_size
from .request import EstimateRequest

if TYPE_CHECKING:
    from ..compiler import MemoryNeed, Program
    from ..options.configuration import CompileConfig
    from ..sources import ModelSource

KEPT = 32
"""Captured programs that are kept: one for each legal number of cores."""
_PROGRAMS: dict[str, Program] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapturedModel:
    """The graphs that an export would compile, with their weights named."""

    program: Program
    config: CompileConfig
    need: MemoryNeed
    """HBM of a core."""


def capture_model(
    source: ModelSource, *, trust_remote_code: bool = False, roles: Collection[str] | None = None, **options: Any
) -> CapturedModel:
    """Capture a model as an export with these options would, without weights and without host code.

    With `roles`, only entry points of a decoder that have one of them are captured.
    """
    from ..compiler import memory_need
    from ..exporters import neuron_config

    config, target = neuron_config(source, options, trust_remote_code=trust_remote_code)
    program = program_of(source, config, trust_remote_code=trust_remote_code, roles=roles)
    need = memory_need(program, target.value)
    return CapturedModel(program=program, config=config, need=need)


def program_of(
    source: ModelSource,
    config: CompileConfig,
    *,
    trust_remote_code: bool = False,
    roles: Collection[str] | None = None,
) -> Program:
    """Capture a program; the newest are kept, because a comparison estimates one on many instances."""
    from ..compiler import compile_graphs
    from ..kinds import kind_of

    fields = {name: value for name, value in config.to_dict().items() if name not in ("target", "instance_type")}
    model = source.config.to_json_string(use_diff=False)
    key = json.dumps([str(source.folder), model, fields, roles and sorted(roles)], sort_keys=True)
    if source.module is None and key in _PROGRAMS:
        return _PROGRAMS[key]
    plan = kind_of(config.task, source.config.model_type).plan(source, config, trust_remote_code=trust_remote_code)
    with Progress(f"Estimating {source.name} for {config.target}") as progress:
        program = compile_graphs(
            [one for one in plan.captures if roles is None or _role(one) in roles],
            target=None,
            auto_cast=config.auto_cast,
            auto_cast_type=config.auto_cast_type,
            num_stages=plan.num_stages,
            on_done=progress.captured,
        ).program
    if source.module is None:
        _PROGRAMS[key] = program
        while len(_PROGRAMS) > KEPT:
            del _PROGRAMS[next(iter(_PROGRAMS))]
    return program


def _role(recapture: Any) -> str:
    """Return the role of an entry point of a decoder, from the keywords of the function that captures it."""
    return str(recapture.keywords["role"])


def capture_on_cores(
    source: ModelSource, request: EstimateRequest, machine: Machine, options: dict[str, Any]
) -> tuple[CapturedModel, Choice[int]]:
    """Capture a model for the requested number of cores, or for the fewest legal ones that hold it.

    The first capture is returned if none fits. Numbers of cores that do not divide its heads are left out.
    """
    capture = functools.partial(capture_model, source, trust_remote_code=request.trusts_code, **options)
    instance, asked = machine.instance.value, request.tensor_parallel_size
    if asked is not None:
        require_tensor_parallel_size(instance, asked)
        return capture(tensor_parallel_size=asked), Choice(value=asked, reason=f"tensor_parallel_size={asked}")
    first, *more = legal_core_counts(instance).counts
    smallest = captured = capture(tensor_parallel_size=first)
    for count in (first, *more):
        if count > first:
            try:
                captured = capture(tensor_parallel_size=count)
            except ConfigError:
                continue
        if captured.need.total <= machine.hbm_bytes_per_core:
            return captured, Choice(value=count, reason=f"fewest legal cores of {instance.name} that hold a replica")
    return smallest, Choice(value=first, reason=f"no number of cores of {instance.name} holds a replica")
