"""`check_model`: capture graphs of an export, judge every operator, count, and refuse nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ..compiler.capture import Captured
from ..compiler.compile import Recapture, capture_graph, link
from ..compiler.memory import memory_need
from ..compiler.placement import JudgedCall, OperatorCheck, group_calls, judged_calls, placed_share
from ..compiler.rules.report import host_ops
from ..configuration import CompileConfig, check_known
from ..core import Choice
from ..errors import CaptureError, DeviceMemoryError
from ..exporters.progress import Progress
from ..exporters.request import COMPILE_OPTIONS, SOURCE_OPTIONS, neuron_config, split_options
from ..exporters.source import ModelSource, infer_task, load_source
from ..hardware import InstanceSpec, Target, resolve_instance
from ..runtime.loaded import require_fit
from .entries import entry_points, extremes
from .report import CaptureFailure, CheckReport, GraphCheck, MemoryCheck

CHECK_OPTIONS = tuple(
    name for name in COMPILE_OPTIONS if name not in ("optlevel", "allow_host_ops", "inline_weights_to_neff")
)
"""Keywords of an export that decide which operators are captured and how much memory they take."""


def check_model(
    model_name_or_path: str | Path,
    *,
    allow_host_ops: Collection[str] = (),
    all_graphs: bool = False,
    **options: Any,
) -> CheckReport:
    """Say what compiling a model would take, without reading weights and without compiling.

    Args:
        model_name_or_path: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        allow_host_ops: operators that may run on the host if the target refuses them, as "aten::sort".
        all_graphs: capture the graphs of every bucket; otherwise of the smallest and the largest of each list, which
            have the same operators. `CheckReport.buckets_between` lists the others.
        **options: those of `main_export` that decide shapes, dtypes and target, and where to find the model.

    Returns:
        The report; `to_dict()` is what `optimum-cli neuron check --json` prints.

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
    check_known(options, [*CHECK_OPTIONS, *SOURCE_OPTIONS], what="the check")
    host_ops(allow_host_ops)
    where, compile_options = split_options(options)
    source = load_source(model_name_or_path, with_weights=False, **where)
    trust_remote_code = where.get("trust_remote_code", False)
    config, target = neuron_config(source, compile_options, trust_remote_code=trust_remote_code)
    instance = resolve_instance(config.instance_type).value
    captured, between = (config, {}) if all_graphs else extremes(config)
    gathered = _gather(source, captured, trust_remote_code)
    calls = {
        graph.captured.name: judged_calls(
            graph.captured, target.value, allow_host_ops=allow_host_ops, prefixes=gathered.prefixes
        )
        for graph in gathered.graphs
    }
    operators = group_calls(call for judged in calls.values() for call in judged)
    return CheckReport(
        model=source.name,
        task=infer_task(source.config, compile_options.get("task") or "auto"),
        family=gathered.family,
        target=target,
        instance=instance,
        config=config,
        graphs=tuple(_graph_check(name, judged) for name, judged in calls.items()),
        buckets_between=between,
        operators=operators,
        capture_failures=gathered.failures,
        memory=_memory(gathered, operators, source.name, config, target.value, instance),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Graph:
    captured: Captured
    recapture: Recapture


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Gathered:
    """What could be captured of a model, and what could not."""

    family: Choice[str] | None = None
    prefixes: tuple[str, ...] = ()
    graphs: tuple[_Graph, ...] = ()
    failures: tuple[CaptureFailure, ...] = ()


def _gather(source: ModelSource, config: CompileConfig, trust_remote_code: bool) -> _Gathered:
    """Capture every entry point; code that stops several is told once."""
    try:
        points = entry_points(source, config, trust_remote_code=trust_remote_code)
    except CaptureError as error:
        return _Gathered(failures=(_failure(error),))
    graphs: list[_Graph] = []
    stopped: dict[str, CaptureFailure] = {}
    with Progress(f"Checking {source.name} for {config.target}") as progress:
        for recapture in points.captures:
            try:
                captured = capture_graph(recapture)
            except CaptureError as error:
                name, line = error.details["graph"], error.details["source_line"]
                earlier = stopped.get(line, _failure(error))
                stopped[line] = dataclasses.replace(earlier, graphs=(*earlier.graphs, name))
            else:
                graphs.append(_Graph(captured=captured, recapture=recapture))
                progress.captured(captured.name)
    return _Gathered(
        family=points.family, prefixes=points.prefixes, graphs=tuple(graphs), failures=tuple(stopped.values())
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
) -> MemoryCheck:
    """Count the HBM of what an export would load; the captured graphs are used up."""
    available = target.hbm_bytes_per_core()
    if gathered.failures:
        return MemoryCheck(need=None, available=available, reason="not known: the model cannot be captured")
    if any(row.counted == "unknown" for row in operators):
        return MemoryCheck(need=None, available=available, reason="not known: sizes depend on values")
    program, _ = link(
        [(graph.captured, graph.recapture) for graph in gathered.graphs],
        auto_cast=config.auto_cast,
        auto_cast_type=config.auto_cast_type,
    )
    need = memory_need(program, lnc=target.chip.default_lnc)
    try:
        require_fit(need, instance=instance, target=target, model_name=model_name)
    except DeviceMemoryError as error:
        return MemoryCheck(need=need, available=available, reason=str(error).splitlines()[0])
    return MemoryCheck(need=need, available=available, reason=f"fits one core of {instance.name}")
