"""The values of an entry: an estimate and a check of a model, an analysis of a kernel. All simulated.

Values are recorded by the content of what they follow from (files that decide a checkpoint's program, the source of a
kernel's file, options, versions), so that a budget where nothing changed takes no capture.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base import env
from ..base.core import Verdict
from ..errors import DeviceMemoryError
from ..files.records import Records
from ..simulator import COUNTS, checkpoint_hash
from .config import Entry
from .limits import LIMITS, Value

BUDGETS = Records(name="budgets", versions=COUNTS.versions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Values of an entry, and what its graphs consist of."""

    values: Mapping[str, Value]
    """By the names in `LIMITS`; quantities that do not apply are left out."""
    operators: Mapping[str, int]
    """Calls of each operator by module, as "aten.mm in model.layers.0-3.mlp"; of a kernel, instructions by the text of
    their line."""
    facts: Mapping[str, str]
    """On what they were measured: instance, target, cores."""
    problem: str = ""
    """Why there are no times; empty if there are."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dataclasses.asdict(self)


def measure(entry: Entry) -> Measured:
    """Return the values of an entry, recorded or measured now.

    Raises:
        NeuronError: the model or kernel cannot be read, or an option is wrong.
    """
    record = BUDGETS.find(_key(entry))
    try:
        return Measured(**record.read()["measured"])
    except (OSError, ValueError, LookupError, TypeError):
        measured = _measured_model(entry) if entry.kind == "model" else _measured_kernel(entry)
    record.write({"measured": measured.to_dict()})
    return measured


def _key(entry: Entry) -> dict[str, Any]:
    """Return everything that the values of an entry follow from."""
    if entry.kind == "kernel":
        folder = Path(entry.subject.rpartition(":")[0]).parent
        sources = {str(path): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
        content: Any = {"sources": sources, "target": env.nki_platform()}
    else:
        from ..sources import find_folder

        content = {"checkpoint": checkpoint_hash(find_folder(entry.subject, with_weights=False))}
        content["instance"] = env.instance_type()
    return {"kind": entry.kind, "subject": entry.subject, "options": dict(entry.options), "content": content}


def _measured_model(entry: Entry) -> Measured:
    from ..checking import check_model
    from ..simulator import KEYWORDS, estimate

    options = dict(entry.options)
    shapes = ("batch_size", "sequence_length", "tensor_parallel_size", "task")
    of_graphs = {name: value for name, value in options.items() if name not in KEYWORDS or name in shapes}
    if instance := options.get("instance"):
        of_graphs["instance_type"] = instance
    report = check_model(entry.subject, **of_graphs)
    hosted = sum(one.calls.count for one in report.operators if one.calls.verdict is Verdict.HOST)
    between = sum(map(len, report.buckets_between.values()))
    values: dict[str, Value] = {
        "compiles": not report.failures(("unsupported", "memory")),
        "num_graphs": len(report.graphs) + between,
        "num_host_operators": hosted,
        "num_operators": sum(graph.num_calls for graph in report.graphs),
        "flops": sum(graph.flops for graph in report.graphs),
    }
    operators: dict[str, int] = {}
    for one in report.operators:
        key = f"{one.calls.op} in {', '.join(path or 'top level' for path in one.calls.module_paths) or 'top level'}"
        operators[key] = operators.get(key, 0) + one.calls.count
    facts, problem = {"instance": report.instance.name, "target": report.target.value.name}, ""
    try:
        result = estimate(entry.subject, **options)
    except DeviceMemoryError as error:
        problem = error.message
    else:
        facts |= {"instance": result.instance.value, "cores": str(result.num_cores.value)}
        values |= {name: one.value for name, one in result.quantities.items() if name in LIMITS["model"]}
    return Measured(values=values, operators=operators, facts=facts, problem=problem)


def _measured_kernel(entry: Entry) -> Measured:
    from ..nki import analyze, costs_of, jit, load_kernel, parse_argument, simulate

    kernel = simulate(load_kernel(entry.subject))
    if target := entry.options.get("target"):
        kernel = jit(kernel, platform_target=target)
    if grid := entry.options.get("grid"):
        kernel = kernel[grid]
    analysis = analyze(kernel, *map(parse_argument, map(str, entry.options.get("arguments", ()))))
    sbuf, psum = analysis.memory
    values: dict[str, Value] = {
        "total_us": analysis.total_us,
        "num_instructions": len(analysis.events),
        "hbm_bytes": analysis.roofline.hbm_bytes,
        "sbuf_bytes": sbuf.peak,
        "psum_bytes": psum.peak,
        "roofline_share": analysis.roofline_share,
    }
    operators: dict[str, int] = {}
    for cost in costs_of(analysis):
        operators[cost.source] = operators.get(cost.source, 0) + cost.num_instructions
    return Measured(values=values, operators=operators, facts={"target": analysis.target})
