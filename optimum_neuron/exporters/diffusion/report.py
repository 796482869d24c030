"""Export a pipeline into a folder, and report every choice on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...compiler.cache import open_cache
from ...compiler.lower import Mode
from ...sources import ModelSource
from ...sources.pipelines import Custom, describe_checker
from ..report import describe
from ..request import neuron_config
from .pipeline import PreparedPipeline, prepare_pipeline
from .save import check_pipeline_output, save_pipeline

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineReport:
    """Outcome of the export of a pipeline."""

    prepared: PreparedPipeline
    output_dir: Path
    size_bytes: int
    """Size of its programs and weights."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and for `--json`."""
        return describe_pipeline(self.prepared) | {"output_dir": str(self.output_dir), "size_bytes": self.size_bytes}


def describe_pipeline(prepared: PreparedPipeline, *, pipe: DiffusionPipeline | None = None) -> dict[str, Any]:
    """Return plain data about a compiled pipeline and each of its programs.

    Args:
        pipe: pipeline whose safety checker is described; None: that of the checkpoint.
    """
    parts = {name: describe(part) for name, part in prepared.parts.items()}
    first = next(iter(parts.values()))
    graphs = [{"component": name, **graph} for name, part in parts.items() for graph in part["graphs"]]
    errors = [
        {**error, "output": f"{name}: {error['output']}"}
        for name, part in parts.items()
        for error in part["validation"]
    ]
    outcomes = {part["cache"]["value"] for part in parts.values()}
    config = {name: value for name, value in prepared.config.to_dict().items() if name not in ("calls", "component")}
    return {
        "model": prepared.source.name,
        "task": {"value": prepared.config.task, "reason": f"the pipeline is a {type(prepared.stock).__name__}"},
        "target": prepared.target.to_dict(),
        "cache": {
            "value": outcomes.pop() if len(outcomes) == 1 else "hit and miss",
            "reason": "; ".join(f"{name}: {part['cache']['value']}" for name, part in parts.items()),
        },
        "host_code": first["host_code"],
        "config": config,
        **describe_checker(pipe or prepared.stock),
        **({"additions": prepared.additions.to_dict()} if prepared.additions else {}),
        "graphs": graphs,
        "hbm_bytes": {
            key: sum(part["hbm_bytes"][key] for part in parts.values())
            for key in first["hbm_bytes"]
            if key != "available"
        }
        | {"available": first["hbm_bytes"]["available"]},
        "fits_one_core": all(part["fits_one_core"] for part in parts.values()),
        "validation": [*errors, *(error.to_dict() for error in prepared.validation)],
        "validated": prepared.validated.to_dict(),
        "timings_s": {name: round(sum(part["timings_s"].values()), 3) for name, part in parts.items()},
        "components": parts,
        "simulated": True,
    }


def export_pipeline(
    source: ModelSource,
    output: Path,
    fields: dict[str, Any],
    *,
    custom: Callable[[str], Custom],
    disable_validation: bool,
    atol: float | None,
    disable_neuron_cache: bool,
    cache_url: str | None,
    compiler_workdir: str | Path | None,
    host_code: Mode,
) -> PipelineReport:
    """Compile a pipeline and save it.

    Args:
        custom: task to what is added to the pipeline.
        disable_neuron_cache: compile even if the cache has the programs.
        compiler_workdir: folder that gets a copy of each NEFF.
        host_code: when code for this machine is compiled.
    """
    check_pipeline_output(source.folder, output)
    config, target = neuron_config(source, fields)
    prepared = prepare_pipeline(
        source,
        config,
        target,
        cache=open_cache(disable_neuron_cache, cache_url),
        custom=custom(config.task),
        validate=not disable_validation,
        atol=atol,
        host_code=host_code,
        compiler_workdir=compiler_workdir,
    )
    try:
        size_bytes = save_pipeline(prepared, output)
    finally:
        prepared.close()
    return PipelineReport(prepared=prepared, output_dir=output, size_bytes=size_bytes)
