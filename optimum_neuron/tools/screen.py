"""How `neuron-top` draws a frame, with rich: the sections of the real tool, for one tab.

It decides nothing and reads nothing: a frame and a view go in, a renderable comes out.

    from rich.console import Console
    from optimum_neuron.tools.screen import View, render

    Console().print(render(frame, View()))
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..hardware import TARGETS
from ..runtime import CATEGORIES, CoreStatus, size_text
from ..version import __version__
from .frame import Frame, ProcessFrame
from .report import core_version
from .usage import COUNTING, CoreUse

_FEW_DEVICES = 16
_BAR_WIDTH = 16
_SUMMARY = {"Tensors": "kv_cache", "Constants": "weights", "Model Code": "code", "Model Scratchpad": "scratch"}
"""Columns of the real tool, and our categories; its runtime memory is part of the model code here."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """View of a frame."""

    tab: int = 0
    """Place in `Frame.tabs`."""
    flops: bool = False
    """Operations each second instead of utilization."""
    expanded: bool = True
    """Each model and category instead of processes alone."""

    def pressed(self, key: str, frame: Frame) -> View:
        """The view after a key; the same one where the key means nothing."""
        last = len(frame.tabs) - 1
        if key.isdecimal() and 1 <= int(key) <= last + 1:
            return dataclasses.replace(self, tab=int(key) - 1)
        if key in "ad":
            return dataclasses.replace(self, tab=min(max(self.tab + (1 if key == "d" else -1), 0), last))
        if key in "fF":
            return dataclasses.replace(self, flops=not self.flops)
        if key == "x":
            return dataclasses.replace(self, expanded=not self.expanded)
        return self


def render(frame: Frame, view: View, *, keys: bool = False) -> RenderableType:
    """Draw one view of a frame, and name the keys on request."""
    shown = frame.selected(view.tab)
    version = core_version(frame.instance)
    unit = "TFLOPS" if view.flops else "Utilization"
    parts: list[RenderableType] = [
        _title(frame),
        _tabs(frame, view),
        _rule(f"NeuronCore {version} {unit}, simulated"),
        _cores(frame, shown, flops=view.flops),
        _rule("VCPU Utilization"),
        _vcpus(frame, shown),
        _rule("Memory Usage Summary"),
        _summary(frame, shown),
        _rule("Memory Usage Details"),
        _details(shown, expanded=view.expanded),
    ]
    if frame.others:
        parts.append(Text(f"processes hold cores of {', '.join(frame.others)} too: --instance shows them", "yellow"))
    if keys:
        parts.append(Text("q quit   1-9 a d tab   F utilization or TFLOPS   x details", "dim"))
    return Group(*parts)


def _title(frame: Frame) -> Text:
    lnc = frame.instance.chip.default_lnc
    grouped = f"   logical-neuroncore-config: {lnc}" if lnc > 1 else ""
    return Text.assemble(
        ("neuron-top", "bold"), f" {__version__} (simulated)   instance-type: {frame.instance.name}{grouped}"
    )


def _tabs(frame: Frame, view: View) -> Text:
    current = view.tab if view.tab < len(frame.tabs) else 0
    tabs = Text()
    for place, name in enumerate(frame.tabs):
        tabs.append(f">{name}<" if place == current else f" {name} ", "green" if place == current else "")
        tabs.append(" ")
    return tabs


def _rule(title: str) -> Rule:
    return Rule(Text(title, "cyan"), align="left", style="dim")


def _cores(frame: Frame, shown: Sequence[ProcessFrame], *, flops: bool) -> RenderableType:
    """A row for each device; of many devices, only those with held cores."""
    per_device = TARGETS[frame.instance.family].logical_cores_per_chip()
    held = {core for process in shown for core in process.process.core_ids}
    uses = {core: use for process in shown if process.usage for core, use in process.usage.cores.items()}
    devices = list(range(frame.instance.num_chips))
    if len(devices) > _FEW_DEVICES:
        devices = sorted({core // per_device for core in held})
    table = Table.grid(padding=(0, 1))
    for device in devices:
        row: list[RenderableType] = [Text(f"ND {device}")]
        for number in range(per_device):
            core = device * per_device + number
            row += _core(f"NC {number}", uses.get(core), held=core in held, flops=flops)
        table.add_row(*row)
    idle = frame.instance.num_chips - len(devices)
    return Group(table, Text(f"{idle} more devices, all idle", "dim")) if idle else table


def _core(name: str, use: CoreUse | None, *, held: bool, flops: bool) -> list[RenderableType]:
    percent = use.utilization_percent if use else None
    if not held:
        text = "free"
    elif use is None or percent is None or use.flops_per_s is None:
        text = use.unknown if use else COUNTING
    else:
        text = f"{use.flops_per_s / 1e12:.3f}" if flops else f"{percent:.1f}%"
    bar = ProgressBar(total=100, completed=percent or 0.0, width=_BAR_WIDTH, finished_style="bar.complete")
    return [Text(f" {name}"), bar if held else Text(" " * _BAR_WIDTH), Text(text.rjust(7), "" if held else "dim")]


def _vcpus(frame: Frame, shown: Sequence[ProcessFrame]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    host = frame.user_percent, frame.system_percent
    runtimes = sum(process.user_percent for process in shown), sum(process.system_percent for process in shown)
    for name, (user, system) in (("System vCPU usage", host), ("Runtime vCPU usage", runtimes)):
        table.add_row(name, f"user {user:5.1f}%", f"system {system:5.1f}%")
    return table


def _summary(frame: Frame, shown: Sequence[ProcessFrame]) -> RenderableType:
    used = [process.process.hbm_bytes() or dict.fromkeys(CATEGORIES, 0) for process in shown]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for column in ("Total", *_SUMMARY):
        table.add_column(column, justify="right")
    host = sum(process.host.memory_bytes for process in shown)
    table.add_row("Host Used Memory", size_text(host))
    table.add_row(
        "Device Used Memory",
        size_text(sum(sum(categories.values()) for categories in used)),
        *(size_text(sum(categories[name] for categories in used)) for name in _SUMMARY.values()),
    )
    of_host = f"{size_text(frame.memory_used_bytes)} of {size_text(frame.memory_total_bytes)} of the host in use"
    return Group(table, Text(of_host, "dim"))


def _details(shown: Sequence[ProcessFrame], *, expanded: bool) -> RenderableType:
    if not shown:
        return Text("no process holds a core", "dim")
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    # A command may be longer than any terminal is wide: it gets the width that the figures leave.
    table.add_column("Process, NeuronCore, Model ID", no_wrap=True, overflow="ellipsis", ratio=1)
    for column in ("Calls/s here", "Latency, simulated", "Host Memory", "Device Memory"):
        table.add_column(column, justify="right", no_wrap=True)
    for frame in shown:
        process = frame.process
        total = process.hbm_bytes()
        hbm = "unknown" if total is None else size_text(sum(total.values()))
        command = f"  {process.command}" if process.command else ""
        name = Text.assemble((process.tag, "green"), (command, "dim"))
        table.add_row(name, _rate(frame, None), "", frame.host.error or size_text(frame.host.memory_bytes), hbm)
        if expanded and process.status:
            for core in process.status.cores:
                table.add_row(f"  NC {core.core_id}", "", "", "", _of(core.hbm_bytes, core.capacity_bytes))
                for owner, categories in core.hbm_bytes.items():
                    for row in _owner(frame, owner, categories, core.core_id):
                        table.add_row(*row)
                for row in _without_memory(frame, core):
                    table.add_row(*row)
    return table


def _owner(frame: ProcessFrame, owner: str, categories: Mapping[str, int], core_id: int) -> list[list[str]]:
    """A row for each owner of memory on a core, with its calls if it is a model, and one for each category."""
    status = frame.process.status
    assert status is not None
    loads = [model.model_id for model in status.models if model.name == owner and core_id in model.core_ids]
    name = f"{owner} ({', '.join(map(str, loads))})" if loads else owner
    calls = [_rate(frame, loads), _latency(frame, loads)] if loads else ["", ""]
    rows = [[f"    {name}", *calls, "", size_text(sum(categories.values()))]]
    rows += [
        [f"      {CATEGORIES[category].runtime_name}", "", "", "", size_text(size_bytes)]
        for category, size_bytes in categories.items()
        if category in CATEGORIES and 0 < size_bytes < sum(categories.values())
    ]
    return rows


def _without_memory(frame: ProcessFrame, core: CoreStatus) -> list[list[str]]:
    """A row for each model that runs on a core and owns none of its memory: torch.compile, and eager operators."""
    status = frame.process.status
    assert status is not None
    names = {model.name for model in status.models if core.core_id in model.core_ids} - core.hbm_bytes.keys()
    return [row for name in sorted(names) for row in _owner(frame, name, {}, core.core_id)]


def _rate(frame: ProcessFrame, models: Sequence[int] | None) -> str:
    """Calls each second, as this host runs them."""
    if frame.usage is None or not frame.usage.elapsed_s:
        return "" if frame.usage is None else "0.0"
    calls = sum(call.num_calls for call in frame.usage.calls if models is None or call.model_id in models)
    return f"{calls / frame.usage.elapsed_s:.1f}"


def _latency(frame: ProcessFrame, models: Sequence[int]) -> str:
    """Mean simulated time of a call."""
    calls = [call for call in frame.usage.calls if call.model_id in models] if frame.usage else []
    if not calls or any(call.device_us is None for call in calls):
        return ""
    busy_us = sum(call.num_calls * (call.device_us or 0.0) for call in calls)
    return f"{busy_us / sum(call.num_calls for call in calls) / 1e3:.3f} ms"


def _of(hbm: Mapping[str, Mapping[str, int]], capacity_bytes: int) -> str:
    return f"{size_text(sum(sum(used.values()) for used in hbm.values()))} of {size_text(capacity_bytes)}"
