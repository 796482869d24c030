"""`main_export`: a checkpoint becomes an exported folder, with a report of every choice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from ..base.core import Choice
from ..errors import ModelError
from ..hardware import resolve_instance
from ..kinds import DECODER_CHOICES, SHARING
from ..sources import (
    ModelSource,
    fill_missing,
    load_source,
    merge_adapter,
    method_of,
    quantization_of,
    served_task,
    weights_reader,
)
from ..sources.pipelines import customize, is_pipeline, split_additions
from .diffusion import PipelineReport, export_pipeline
from .folder_marks import is_export
from .inspection import describe_graph, describe_stages
from .peer_options import refuse_additions, translate
from .prepare import open_cache, prepare
from .prepared import Prepared, WorkFolder
from .request import neuron_config, split_options
from .save import check_output, save_folder
from .vendor_folder import refuse_vendor_export


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportReport:
    """Outcome of an export with its choices and their reasons."""

    prepared: Prepared
    """The compiled model."""
    output_dir: Path
    """Output folder."""
    size_bytes: int
    """Size of the folder."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for people and for `--json`."""
        return describe(self.prepared) | {"output_dir": str(self.output_dir), "size_bytes": self.size_bytes}


def main_export(
    model_name_or_path: str | Path,
    output: str | Path,
    *,
    adapter: str | Path | None = None,
    allow_missing_weights: bool | None = None,
    disable_validation: bool = False,
    atol: float | None = None,
    disable_neuron_cache: bool = False,
    cache_url: str | None = None,
    compiler_workdir: str | Path | None = None,
    precompile: bool = False,
    **options: Any,
) -> ExportReport | PipelineReport:
    """Compile a checkpoint for a simulated NeuronCore and save it.

    Args:
        model_name_or_path: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        output: folder to write.
        adapter: folder or id of a PEFT adapter that is merged into the checkpoint first.
        allow_missing_weights: Fill weights that are missing in the checkpoint with random numbers; a warning names
            them. None: those of a head or pooler that was never trained, as transformers does; False: none.
        disable_validation: do not compare with the reference model.
        atol: largest absolute difference of logits that passes; None derives it from the arithmetic.
        disable_neuron_cache: compile even if the cache has the NEFF.
        cache_url: where compiled NEFFs are kept; None asks NEURON_COMPILE_CACHE_URL.
        compiler_workdir: folder that gets a copy of the NEFF, graph.neff.
        precompile: also compile the code that runs the model on this machine, into the host-code store; it is not
            part of the export. Without it, the model is validated with ATen's operators, unless the code is there.
        **options: fields of `NeuronConfig`, or of the configuration that the task has, of `SourceOptions`,
            and, for diffusion pipelines, of `PipelineAdditions`.

    Returns:
        The report; `to_dict()` is the output of `--json`.

    Raises:
        NeuronError: see `optimum_neuron/errors.py`; nothing is left at `output` that looks like an export.

    Example:
        ```python no-run
        from optimum_neuron.exporters import main_export

        report = main_export("smollm2", "smollm2_neuron", sequence_length=512)
        print(report.to_dict()["cache"])
        ```
    """
    cache = open_cache(disable_neuron_cache, cache_url)
    additions, options = split_additions(options)
    where, fields = split_options(translate(options))
    trust = where.get("trust_remote_code", False)
    work = WorkFolder()  # of a merged checkpoint, which is read until the export is written
    source = _source(model_name_or_path, adapter, where, work.path)
    if is_pipeline(source.folder):
        return export_pipeline(
            source,
            Path(output),
            fields,
            custom=lambda task: customize(source, task, additions, **where),
            disable_validation=disable_validation,
            atol=atol,
            disable_neuron_cache=disable_neuron_cache,
            cache_url=cache_url,
            compiler_workdir=compiler_workdir,
            host_code="wait" if precompile else "stored",
        )
    refuse_additions(additions.to_dict())
    check_output(source, Path(output))
    config, target = neuron_config(source, fields, trust_remote_code=trust)
    if allow_missing_weights and source.has_weights:
        source = fill_missing(source, task=config.task, dtype=config.torch_dtype, trust_remote_code=trust)
    prepared = prepare(
        source,
        config,
        target,
        cache=cache,
        validate=not disable_validation,
        atol=atol,
        trust_remote_code=trust,
        host_code="wait" if precompile else "stored",
        compiler_workdir=compiler_workdir,
        fill_head=allow_missing_weights is not False,
    )
    try:
        size_bytes = save_folder(prepared, Path(output))
    finally:
        if prepared.loaded is not None:
            prepared.loaded.close()
    return ExportReport(prepared=prepared, output_dir=Path(output), size_bytes=size_bytes)


def _source(model: str | Path, adapter: str | Path | None, where: dict[str, Any], merged: Path) -> ModelSource:
    """The checkpoint, or one in the folder `merged` that has an adapter in its weights."""
    if adapter is None:
        source = load_source(model, **where)
    else:
        folder = merge_adapter(model, adapter, merged, **where)
        source = load_source(folder, trust_remote_code=where.get("trust_remote_code", False))
        source = dataclasses.replace(source, name=f"{model} with {adapter}")
    if is_export(source.folder) and not source.has_weights:
        message = f"{model} is an export without weights."
        hint = "Pass the checkpoint that it was exported from."
        raise ModelError(message, hint=hint, folder=str(source.folder))
    refuse_vendor_export(source.folder)
    return source


def describe(prepared: Prepared) -> dict[str, Any]:
    """Return plain data about a compiled model."""
    host = prepared.host.describe() if prepared.host else Choice(value="none", reason="no weights to run with")
    available, instance = (
        prepared.target.value.hbm_bytes_per_core(),
        resolve_instance(prepared.config.instance_type).value,
    )
    task = served_task(prepared.source.config)
    if task is None or task.value != prepared.config.task:
        task = Choice(value=prepared.config.task, reason="requested by name")
    outcome, _, why = prepared.cache.reason.partition(": ")
    quantization = quantization_of(prepared.source.config)
    return {
        "model": prepared.source.name,
        "task": task.to_dict(),
        "family": prepared.metadata["family"],
        **{name: prepared.metadata[name] for name in (*DECODER_CHOICES, SHARING) if name in prepared.metadata},
        "target": prepared.target.to_dict(),
        "num_cores": prepared.artifact.num_cores.to_dict(),
        **({"stages": describe_stages(prepared.program, prepared.needs, instance)} if len(prepared.needs) > 1 else {}),
        "cache": {**prepared.cache.to_dict(), "value": outcome, "reason": why},
        "host_code": {
            # What new requests and sequences run on: code that is being bound serves a moment later.
            "value": host.value if prepared.loaded is None else prepared.loaded.executor.levels,
            "reason": host.reason,
        },
        "weights": None
        if prepared.tensors is None
        else {"value": prepared.tensors.value.origin, "reason": prepared.tensors.reason},
        **(
            {"stored_as": {"value": method_of(quantization), "reason": prepared.tensors.reason}}
            if quantization is not None and prepared.tensors is not None
            else {}
        ),
        **({"random_weights": list(prepared.source.random_weights)} if prepared.source.random_weights else {}),
        "config": prepared.config.to_dict(),
        "placed_share": prepared.placement,
        "layers": prepared.metadata["stacks"],
        "patches": prepared.metadata.get("patches", []),
        "graphs": [describe_graph(graph) for graph in prepared.program.graphs.values()],
        "hbm_bytes": {**dataclasses.asdict(prepared.need), "total": prepared.need.total, "available": available},
        "fits_one_core": prepared.need.total <= available,
        "validation": [error.to_dict() for error in prepared.validation],
        "validated": prepared.validated.to_dict(),
        **(
            {"reference_weights": weights_reader(quantization).to_dict()}
            if quantization is not None and prepared.validated.value != "off"
            else {}
        ),
        **({"quality": prepared.quality.to_dict()} if prepared.quality else {}),
        "timings_s": {name: round(seconds, 3) for name, seconds in prepared.timings_s.items()},
        "simulated": True,
    }
