"""Compile a checkpoint's configuration into a NEFF, through the cache. No weights are needed or read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..artifact import core_count
from ..base import env
from ..base.core import Choice
from ..compiler import Compiled, compile_graphs, parse_flags, stage_needs, write_program
from ..compiler.cache import CompileCache
from ..compiler.rules import Report, base_name, host_ops, neuroncore_v1
from ..errors import ConfigError, nearest
from ..hardware import Target, resolve_instance, taking_e4m3fn
from ..kinds import Plan, kind_of
from ..options.configuration import CompileConfig
from ..runtime import require_fit
from ..sources import ModelSource
from ..weights import Shards
from .request import entry_fields, label_of, request_fields, without_weights


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """A program compiled in this process."""

    compiled: Compiled
    """Program and the decisions made on the way."""
    plan: Plan
    """Source that it was captured from."""

    @functools.cached_property
    def metadata(self) -> dict[str, Any]:
        """Facts that a NEFF must store with the program, so that weights can be bound to it."""
        report = self.compiled.reports[0]
        return {
            "family": self.plan.choice.to_dict(),
            "weight_sources": {name: list(self.plan.weight_sources[name]) for name in self.compiled.program.weights},
            "stacks": {path: choice.to_dict() for path, choice in self.compiled.stacks.items()},
            "operators": report.to_dict(),
            "placement": self.placement,
            **self.plan.facts,
        }

    @property
    def placement(self) -> dict[str, Any]:
        """Part of the FLOPs that the device runs, 0 to 1, and why, and the operators that the host runs."""
        hosted = sorted({base_name(r.op) for report in self.compiled.reports for r in report.hosted})
        reason = "every operator runs on the device"
        if hosted:
            reason = f"of the FLOPs of one run of every graph; allowed on the host: {', '.join(hosted)}"
        return {"value": self.compiled.placed_share, "reason": reason, "host_ops": hosted}


def compile_source(
    source: ModelSource,
    config: CompileConfig,
    target: Target,
    *,
    trust_remote_code: bool = False,
    on_done: Callable[[str], None] = lambda name: None,
) -> Built:
    """Build the model of a configuration and compile its entry points."""
    host_ops(config.allow_host_ops)  # unknown names fail before the capture
    plan = kind_of(config.task, source.config.model_type).plan(source, config, trust_remote_code=trust_remote_code)
    flags = parse_flags((), defaults=env.compiler_flags())
    compiled = compile_graphs(
        plan.captures,
        target=judging_target(target, config),
        auto_cast=config.auto_cast,
        auto_cast_type=config.auto_cast_type,
        allow_host_ops=config.allow_host_ops,
        implicit_integer_downcast=flags.implicit_integer_downcast,
        num_stages=plan.num_stages,
        on_done=on_done,
    )
    of_inf1 = (*neuroncore_v1.LOOKUPS, *neuroncore_v1.CACHE_WRITES)
    implied = host_ops(of_inf1) if target.core.generation == 1 else ()
    _require_matched([name for name in config.allow_host_ops if name not in implied], compiled.reports)
    return Built(compiled=compiled, plan=plan)


def judging_target(target: Target, config: CompileConfig) -> Target:
    """Return the target by which operators are judged: with keys and values in fp8, it takes torch's e4m3."""
    return taking_e4m3fn(target) if config.kv_cache_dtype.startswith("fp8") else target


def _require_matched(allowed: Sequence[str], reports: Sequence[Report]) -> None:
    """Reject permissions for operators that the model does not call: they are misspelled, or of another model."""
    present = {base_name(ruling.op) for report in reports for ruling in report.rulings}
    unknown = [name for name in allowed if name not in present]
    if unknown:
        hosted = sorted({base_name(ruling.op) for report in reports for ruling in report.hosted})
        listed = "; no ".join(f"{name}{nearest(name, present)}" for name in unknown)
        message = f"allow_host_ops={list(allowed)}: the model has no {listed}."
        hint = f"Allow {', '.join(hosted)} only." if hosted else "Remove allow_host_ops."
        details = {"value": list(allowed), "unknown": unknown, "choices": hosted}
        raise ConfigError(message, hint=hint, option="allow_host_ops", **details)


def cached_neff(
    source: ModelSource,
    config: CompileConfig,
    target: Target,
    *,
    cache: CompileCache | None,
    workdir: Path,
    trust_remote_code: bool = False,
    on_done: Callable[[str], None] = lambda name: None,
) -> Choice[Path]:
    """Return the NEFF of a model, from the cache or compiled now, and why.

    Without a cache it is compiled always and goes into the `workdir`. `on_done` is called with the name of each
    compiled entry point.
    """
    # The behavior of checkpoint code or of a model in memory is not in its configuration: only capturing shows it.
    is_known = not trust_remote_code and source.module is None
    request = request_fields(source, config) if is_known else None
    if cache is not None and request is not None:
        entry = cache.find(request)
        if entry.value is not None:
            return Choice(value=entry.value, reason=entry.reason)
    built = compile_source(source, config, target, trust_remote_code=trust_remote_code, on_done=on_done)
    if source.has_weights:
        _require_memory(built, source, config, target)

    def produce(path: Path) -> None:
        write_program(
            path, built.compiled.program, name=source.config.model_type, target=target, metadata=built.metadata
        )

    if cache is None:
        produce(workdir / "graph.neff")
        return Choice(value=workdir / "graph.neff", reason="miss: the cache is switched off")
    fields = entry_fields(built.compiled.program, built.metadata, source, config)
    result = cache.get_or_compile(fields, produce, request=request, label=label_of(source))
    return Choice(value=result.path, reason=result.choice.reason, rejected=result.choice.rejected)


def _require_memory(built: Built, source: ModelSource, config: CompileConfig, target: Target) -> None:
    """Check that a core, or a chip whose cores share their memory, holds the model, before its NEFF is written."""
    program, shards = built.compiled.program, built.metadata.get("shards")
    require_fit(
        stage_needs(program, target),
        instance=resolve_instance(config.instance_type).value,
        target=target,
        model_name=source.name,
        num_cores=core_count(program, Shards() if shards is None else Shards.from_dict(shards)).value,
        program=program,
    )


def cache_request(
    model_name_or_path: str | Path, *, cache_url: str | None = None, **options: object
) -> tuple[CompileCache, dict[str, Any]]:
    """Return the cache and the fields that an export with these options would ask it for.

    The model is captured, which takes seconds and no weights, because the fields hold the program's hash.
    """
    source, config, target, trust = without_weights(model_name_or_path, options)
    built = compile_source(source, config, target.value, trust_remote_code=trust)
    return CompileCache(cache_url), entry_fields(built.compiled.program, built.metadata, source, config)
