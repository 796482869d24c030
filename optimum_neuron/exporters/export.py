"""`main_export`: a checkpoint becomes an exported folder, with a report of every choice."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.cache import open_cache
from ..errors import ModelError
from ..files.atomic import WorkFolder
from ..options.configuration import is_export, is_plain
from ..sources import (
    ModelSource,
    fill_missing,
    is_pipeline,
    load_source,
    merge_adapter,
)
from ..sources.pipelines import customize, split_additions
from .peer_options import refuse_additions, split_options
from .prepare import prepare
from .report import ExportReport
from .request import neuron_config
from .save import check_output, save_folder
from .vendor_folder import refuse_vendor_export

if TYPE_CHECKING:
    from .diffusion import PipelineReport


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
    **options: object,
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
    where, fields = split_options(options)
    trust = where.get("trust_remote_code", False)
    # A merged checkpoint is read until the export is written.
    merged = None if adapter is None else WorkFolder()
    source = _source(model_name_or_path, adapter, where, merged)
    if is_pipeline(source.folder):
        from .diffusion import export_pipeline

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
    if additions:
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


def _source(
    model: str | Path, adapter: str | Path | None, where: dict[str, Any], merged: WorkFolder | None
) -> ModelSource:
    """The checkpoint, or one in the folder `merged` that has an adapter in its weights."""
    if adapter is None or merged is None:
        source = load_source(model, **where)
    else:
        folder = merge_adapter(model, adapter, merged.path, **where)
        source = load_source(folder, trust_remote_code=where.get("trust_remote_code", False))
        source = dataclasses.replace(source, name=f"{model} with {adapter}")
    if is_export(source.folder) and not source.has_weights:
        message = f"{model} is an export without weights."
        hint = "Pass the checkpoint that it was exported from."
        raise ModelError(message, hint=hint, folder=str(source.folder))
    if not is_plain(source.folder):
        refuse_vendor_export(source.folder)
    return source
