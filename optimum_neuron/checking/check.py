"""`check_model`: capture graphs of an export, judge every operator, and count; nothing is rejected."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..artifact import core_count
from ..base.core import Choice
from ..base.progress import Progress
from ..compiler import (
    CapturedGraph,
    JudgedCall,
    OperatorCheck,
    capture_graphs,
    group_calls,
    judged_calls,
    link,
    memory_need,
    placed_share,
)
from ..compiler.rules import host_ops
from ..errors import CaptureError, DeviceMemoryError
from ..exporters import judging_target, without_weights
from ..hardware import InstanceSpec, Target, kernels_for, resolve_instance, resolve_target
from ..kinds import compile_options, kind_of
from ..options.configuration import CompileConfig
from ..options.option import SOURCE_OPTIONS, check_known
from ..runtime import require_fit
from ..sources import ModelSource, infer_task
from ..weights import Shards
from .report import CaptureFailure, CheckReport, GraphCheck, MemoryCheck


def check_model(
    model_name_or_path: str | Path,
    *,
    allow_host_ops: Collection[str] = (),
    all_graphs: bool = False,
    **options: Any,
) -> CheckReport:
    """Report what compiling a model would take, without reading weights and without compiling.

    Args:
        model_name_or_path: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        allow_host_ops: operators that may run on the host if the target does not support them, as "aten::sort".
        all_graphs: capture the graphs of every bucket; otherwise of the smallest and the largest of each list, which
            have the same operators. `CheckReport.buckets_between` lists the others.
        **options: Options of `main_export` that set shapes, dtypes, and target, or locate the model.

    Returns:
        The report; `to_dict()` is the output of `optimum-cli neuron check --json`.

    Raises:
        ModelError: the model cannot be found, or its task cannot be exported.
        ConfigError: an option is unknown, has no effect here, or is out of range.

    Example:
        ```python no-run
        from optimum_neuron import check_model

        report = check_model("smollm2", instance_type="trn2", sequence_length=512)
        assert report.tier == 1 and report.memory.fits
        ```
    """
    check_known(
        options,
        [*compile_options(of_graphs=True), *SOURCE_OPTIONS],
        what="the check",
        listed="`optimum-cli neuron check --help`",
    )
    host_ops(allow_host_ops)
    source, config, target, trust_remote_code = without_weights(model_name_or_path, options)
    instance = resolve_instance(config.instance_type).value
    captured, between = (config, {}) if all_graphs else extremes(config)
    gathered = _gather(source, captured, trust_remote_code)
    calls = {
        graph.captured.name: judged_calls(
            graph.captured,
            judging_target(target.value, config),
            allow_host_ops=(*config.allow_host_ops, *allow_host_ops),
            prefixes=gathered.prefixes,
        )
        for graph in gathered.graphs
    }
    operators = group_calls(call for judged in calls.values() for call in judged)
    num_cores, memory = _memory(gathered, operators, source.name, config, target.value, instance)
    return CheckReport(
        model=source.name,
        task=infer_task(source.config, options.get("task") or "auto"),
        family=gathered.family,
        target=target,
        instance=instance,
        config=config,
        graphs=tuple(_graph_check(name, judged) for name, judged in calls.items()),
        buckets_between=between,
        operators=operators,
        capture_failures=gathered.failures,
        num_cores=num_cores,
        memory=memory,
    )


def extremes(config: CompileConfig) -> tuple[CompileConfig, dict[str, tuple[int, ...]]]:
    """Return a configuration with the smallest and the largest bucket of each list, and the buckets between them.

    Graphs of buckets between those two have the same operators with sizes between theirs, so that a limit on a size
    shows at one of the ends.
    """
    ends: dict[str, Any] = {}
    between = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, tuple) and len(value) > 2 and all(isinstance(size, int) for size in value):
            ends[field.name] = (min(value), max(value))
            between[field.name] = tuple(size for size in value if size not in ends[field.name])
    return dataclasses.replace(config, **ends), between


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Gathered:
    """Captured graphs of a model, and the failures of the others."""

    family: Choice[str] | None = None
    prefixes: tuple[str, ...] = ()
    shards: Shards = Shards()
    num_stages: int = 1
    graphs: tuple[CapturedGraph, ...] = ()
    failures: tuple[CaptureFailure, ...] = ()


def _gather(source: ModelSource, config: CompileConfig, trust_remote_code: bool) -> _Gathered:
    """Capture every entry point; a line of code that stops several is reported once."""
    try:
        kind = kind_of(config.task, source.config.model_type)
        plan = kind.plan(source, config, trust_remote_code=trust_remote_code)
    except CaptureError as error:
        return _Gathered(failures=(_failure(error),))
    stopped: dict[str, CaptureFailure] = {}

    def stop(error: CaptureError) -> None:
        name, line = error.details["graph"], error.details["source_line"]
        earlier = stopped.get(line, _failure(error))
        stopped[line] = dataclasses.replace(earlier, graphs=(*earlier.graphs, name))

    target = resolve_target(config.target).value
    with Progress(f"Checking {source.name} for {config.target}") as progress, kernels_for(target):
        graphs = capture_graphs(
            plan.captures, on_captured=lambda captured: progress.captured(captured.name), on_error=stop
        )
    return _Gathered(
        family=plan.choice,
        prefixes=plan.prefixes,
        shards=Shards.from_dict(plan.facts["shards"]) if "shards" in plan.facts else Shards(),
        num_stages=plan.num_stages,
        graphs=tuple(graphs),
        failures=tuple(stopped.values()),
    )


def _failure(error: CaptureError) -> CaptureFailure:
    return CaptureFailure(graphs=(), source_line=error.details.get("source_line"), reason=str(error))


def _graph_check(name: str, calls: Sequence[JudgedCall]) -> GraphCheck:
    return GraphCheck(
        name=name,
        num_calls=len(calls),
        flops=sum(call.work.flops for call in calls),
        placed_share=placed_share(calls),
    )


def _memory(
    gathered: _Gathered,
    operators: Sequence[OperatorCheck],
    model_name: str,
    config: CompileConfig,
    target: Target,
    instance: InstanceSpec,
) -> tuple[Choice[int] | None, MemoryCheck]:
    """Count the cores and the HBM of what an export would load; the captured graphs are used up."""
    available = target.hbm_bytes_of_one_core()
    if gathered.failures:
        return None, MemoryCheck(need=None, available=available, reason="not known: the model cannot be captured")
    if any(row.counted == "unknown" for row in operators):
        return None, MemoryCheck(need=None, available=available, reason="not known: sizes depend on values")
    program, _ = link(
        gathered.graphs,
        auto_cast=config.auto_cast,
        auto_cast_type=config.auto_cast_type,
        num_stages=gathered.num_stages,
    )
    need = memory_need(program, target)
    num_cores = core_count(program, gathered.shards)
    try:
        require_fit(
            [need],
            instance=instance,
            target=target,
            model_name=model_name,
            num_cores=num_cores.value,
            program=program,
        )
        cores = "one core" if num_cores.value == 1 else f"{num_cores.value} cores"
        reason = f"fits {cores} of {instance.name}"
    except DeviceMemoryError as error:
        reason = f"{error.message.splitlines()[0]} {error.hint}"
    return num_cores, MemoryCheck(need=need, available=available, reason=reason)
