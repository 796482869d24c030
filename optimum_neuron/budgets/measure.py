"""The values of an entry: an estimate and a check of a model, an analysis of a kernel, a run of a script.

Values are recorded by the content of what they follow from (files that decide a checkpoint's program, the source of a
kernel's file, options, versions), so that a budget where nothing changed takes no capture. Scripts run each time: what
they read is not known. `weights.py` has the values that a model's weights decide.
"""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..base import env
from ..base.core import Verdict
from ..errors import ConfigError, DeviceMemoryError
from ..files.records import Records
from ..options.configuration import CompileConfig, NeuronConfig
from ..simulator import COUNTS, checkpoint_hash
from .config import Entry
from .limits import LIMITS, Value
from .weights import measure_weights, weights_content

BUDGETS = Records(name="budgets", versions=COUNTS.versions)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """Values of an entry, and what its graphs consist of."""

    values: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    """By the names in `LIMITS`; quantities that do not apply are left out."""
    operators: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Calls of each operator by module, as "aten.mm in model.layers.0-3.mlp", or by line of a script; of a kernel,
    instructions by the text of their line."""
    flops: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """FLOPs of these operators, by the same names, of models and scripts."""
    moved_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Bytes by the same names: of a model, those of the tensors that its operators take and return; of scripts and
    kernels, those from and to HBM."""
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """On what they were measured: instance, target, cores."""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What they were measured with: the options of the entry, and versions of libraries."""
    problem: str = ""
    """Why there are no times; empty if there are."""

    def joined(self, other: Measured) -> Measured:
        """Return both."""
        return Measured(
            values={**self.values, **other.values},
            operators={**self.operators, **other.operators},
            flops={**self.flops, **other.flops},
            moved_bytes={**self.moved_bytes, **other.moved_bytes},
            facts={**self.facts, **other.facts},
            given={**self.given, **other.given},
            problem=" ".join(filter(None, (self.problem, other.problem))),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dataclasses.asdict(self)


def measure(entry: Entry) -> Measured:
    """Return the values of an entry, recorded or measured now.

    Raises:
        NeuronError: the model, kernel, or script cannot be read, or an option is wrong.
    """
    options = {entry.kind: entry.subject, **entry.options, **({"dataset": entry.dataset} if entry.dataset else {})}
    given = {**{name: str(value) for name, value in options.items()}, **BUDGETS.versions()}
    return dataclasses.replace(_measured(entry), given=given)


def _measured(entry: Entry) -> Measured:
    if entry.kind == "script":
        return _measured_script(entry)
    if entry.kind == "kernel":
        return _recorded(_key_of_kernel(entry), lambda: _measured_kernel(entry))
    measured = _recorded(_key_of_model(entry), lambda: _measured_model(entry))
    by = {LIMITS["model"][name].by for name in entry.limits}
    if of_weights := by & {"validation", "tokens"}:
        key = {**_named(entry), "content": weights_content(entry, of_weights)}
        options = _options_of_graphs(entry)
        measured = measured.joined(_recorded(key, lambda: Measured(**measure_weights(entry, of_weights, options))))
    return measured.joined(_measured_dataset(entry, measured)) if "dataset" in by else measured


def _recorded(key: Mapping[str, Any], measured_now: Callable[[], Measured]) -> Measured:
    """Return the values of a key, measured where there is no record of them."""
    record = BUDGETS.find(key)
    try:
        return Measured(**record.read()["measured"])
    except (OSError, ValueError, LookupError, TypeError):
        measured = measured_now()
    record.write({"measured": measured.to_dict()})
    return measured


def _named(entry: Entry) -> dict[str, Any]:
    return {"kind": entry.kind, "subject": entry.subject, "options": dict(entry.options)}


def _key_of_kernel(entry: Entry) -> dict[str, Any]:
    folder = Path(entry.subject.rpartition(":")[0]).parent
    sources = {str(path): path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}
    return {**_named(entry), "content": {"sources": sources, "target": env.nki_platform()}}


def _key_of_model(entry: Entry) -> dict[str, Any]:
    from ..sources import find_folder

    def content_of(model: str) -> str:
        return checkpoint_hash(find_folder(model, with_weights=False))

    content: dict[str, Any] = {"checkpoint": content_of(entry.subject), "instance": env.instance_type()}
    if draft := entry.options.get("draft_model"):
        content["draft"] = content_of(draft)
    if file := entry.options.get("constants"):  # the estimate says why a file cannot be read
        path = Path(file)
        content["constants"] = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    return {**_named(entry), "content": content}


def _measured_model(entry: Entry) -> Measured:
    from ..checking import check_model
    from ..simulator import QUANTITIES, estimate

    report = check_model(entry.subject, **_options_of_graphs(entry))
    hosted = sum(one.calls.count for one in report.operators if one.calls.verdict is Verdict.HOST)
    between = sum(map(len, report.buckets_between.values()))
    values: dict[str, Value] = {
        "compiles": not report.failures(("unsupported", "memory")),
        "num_graphs": len(report.graphs) + between,
        "num_host_operators": hosted,
        "num_operators": sum(graph.num_calls for graph in report.graphs),
        "flops": sum(graph.flops for graph in report.graphs),
    }
    operators, work, moved = (collections.Counter[str]() for _ in range(3))
    for one in report.operators:
        key = f"{one.calls.op} in {', '.join(path or 'top level' for path in one.calls.module_paths) or 'top level'}"
        operators[key] += one.calls.count
        work[key] += one.flops
        moved[key] += one.moved_bytes
    facts, problem = {"instance": report.instance.name, "target": report.target.value.name}, ""
    if buckets := _prompt_buckets(report.config):
        facts["buckets"] = ",".join(map(str, buckets))
    try:
        result = estimate(entry.subject, **entry.options)
    except DeviceMemoryError as error:
        problem = error.message
    except ConfigError as error:  # an option of exports that estimates do not have, such as torch_dtype
        if set(QUANTITIES) & set(entry.limits):
            raise
        problem = error.message
    else:
        facts |= {"instance": result.instance.value, "cores": str(result.num_cores.value)}
        values |= {name: one.value for name, one in result.quantities.items() if name in LIMITS["model"]}
    return Measured(
        values=values,
        operators=dict(operators),
        flops=dict(work),
        moved_bytes=dict(moved),
        facts=facts,
        problem=problem,
    )


def _options_of_graphs(entry: Entry) -> dict[str, Any]:
    """Return the options of an export: those of an estimate that say nothing about graphs are left out."""
    from ..simulator import KEYWORDS

    shapes = ("batch_size", "sequence_length", "tensor_parallel_size", "task")
    options = {name: value for name, value in entry.options.items() if name not in KEYWORDS or name in shapes}
    if instance := entry.options.get("instance"):
        options["instance_type"] = instance
    return options


def _prompt_buckets(config: CompileConfig) -> tuple[int, ...]:
    """Return the lengths that texts are padded to; empty for models without texts."""
    if isinstance(config, NeuronConfig):
        return tuple(config.prefill_buckets)
    length = vars(config).get("sequence_length") or ()
    return (length,) if isinstance(length, int) else tuple(length)


def _measured_dataset(entry: Entry, measured: Measured) -> Measured:
    """Return what the prompts of a data set are padded by; a prompt longer than the buckets runs in chunks."""
    from ..buckets import read_lengths
    from ..engine import smallest_bucket

    buckets = [int(size) for size in measured.facts.get("buckets", "").split(",") if size]
    if not buckets:
        return Measured(problem=f"{entry.subject} reads no text.")
    lengths = read_lengths(entry.dataset["file"], **{key: entry.dataset.get(key) for key in ("column", "tokenizer")})
    padding = 0
    for length in lengths:
        rest = length % buckets[-1]
        bucket = smallest_bucket(rest, buckets)
        assert bucket is not None
        padding += bucket - rest if rest else 0
    return Measured(values={"padding_share": padding / sum(lengths)})


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
    operators, moved = collections.Counter[str](), collections.Counter[str]()
    for cost in costs_of(analysis):
        operators[cost.source] += cost.num_instructions
        moved[cost.source] += cost.hbm_bytes
    facts = {"target": analysis.target}
    return Measured(values=values, operators=dict(operators), moved_bytes=dict(moved), facts=facts)


def _measured_script(entry: Entry) -> Measured:
    """Run a script in its own process, with its output on stderr."""
    from ..profiling import profile_script

    run = profile_script(entry.subject, tuple(map(str, entry.options.get("arguments", ()))), stdout=sys.stderr)
    if run.profile is None:
        return Measured(problem=f"{entry.subject} ended with exit code {run.exit_code}.")
    compiled, xla = run.compiles, run.compiles.get("xla", {})
    values: dict[str, Value] = {
        "num_graphs": len(compiled.get("graphs", ())) + len(xla.get("graphs", ())),
        "num_recompiles": compiled.get("num_recompiles", 0) + xla.get("num_recompiles", 0),
        "num_reads": sum(read["count"] for read in xla.get("reads", ())),
        "num_calls": sum(graph.num_calls for graph in run.profile.graphs),
        "device_ms": run.profile.device_us / 1e3,
    }
    operators, work, moved = (collections.Counter[str]() for _ in range(3))
    for row in run.profile.rows():
        key = f"{row.operator} in {row.module_path or row.source_line or row.graph}"
        operators[key] += row.num_calls
        work[key] += row.flops
        moved[key] += row.hbm_bytes
    targets = sorted({machine.target for machine in run.profile.machines})
    return Measured(
        values=values,
        operators=dict(operators),
        flops=dict(work),
        moved_bytes=dict(moved),
        facts={"target": ", ".join(targets)},
    )
