"""What every compiled model has: `from_pretrained` and `from_model`.

A checkpoint is exported, an exported folder is loaded; which of the two a path is decides itself. What a model can do
once it is there is in `model.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import transformers

from ..compiler.lower.lower import Mode
from ..configuration import check_known
from ..errors import ConfigError, ModelError, refusal
from ..exporters.folder import is_export
from ..exporters.load import load_exported
from ..exporters.peer_options import translate
from ..exporters.prepare import Prepared, WorkFolder, check_tolerance, open_cache, prepare
from ..exporters.request import COMPILE_OPTIONS, SOURCE_OPTIONS, neuron_config
from ..exporters.source import ModelSource, find_folder, load_source
from ..exporters.tasks import TASKS, find_task, kinds_of_task, plain_task
from ..exporters.tensors import fill_missing
from ..hardware import resolve_instance
from ..runtime.copies import claimed
from .form import require_form, require_name
from .in_memory import source_in_memory
from .model import CompiledModel

EXPORT_OPTIONS = ("disable_validation", "atol", "disable_neuron_cache", "cache_url", "compiler_workdir")

CHECKPOINT_OPTIONS = (*EXPORT_OPTIONS, "allow_missing_weights")
"""Keywords of the export of a checkpoint; a model in memory has all of its weights."""

LOAD_OPTIONS = ("wait_for_host_code",)
"""Keywords that say how a model is loaded, exported before or not."""


class NeuronModel(CompiledModel):
    """A compiled program with the interface that transformers expects of a model."""

    task = ""
    """Task that the class serves; empty: any."""
    kind = ""
    """Kind of models, as `exporters.tasks.Task.kind`, where a task has several."""
    load_options: tuple[str, ...] = ()
    """Keywords of `from_pretrained` that say how a model is loaded, beside those of every model."""

    _config_folder: WorkFolder | None = None
    """Of a model that was in memory, as long as this one lives."""

    @classmethod
    def from_pretrained(
        cls, model_id: str | Path, config: Any = None, export: bool | None = None, **options: Any
    ) -> Self:
        """Load an exported folder, or export a checkpoint.

        Args:
            model_id: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
            config: a transformers configuration to use instead of the checkpoint's; that of an exported folder is
                fixed.
            export: True exports a checkpoint, False requires an exported folder, None does what fits.
            **options: fields of `NeuronConfig` and `instance_type`; where the model is (`subfolder, revision, token,
                cache_dir, local_files_only, force_download, trust_remote_code`); for an export `disable_validation,
                atol, disable_neuron_cache, cache_url, compiler_workdir, allow_missing_weights`; and
                `wait_for_host_code`: True returns when all code for this machine is compiled, False at once: blocks
                then run operator by operator until it is. Keywords of Optimum Neuron that mean nothing here are
                accepted (`exporters/peer_options.py`).

        Raises:
            NeuronError: see `optimum_neuron/errors.py`.
        """
        options = translate(options, known=COMPILE_OPTIONS)
        known = [*COMPILE_OPTIONS, *SOURCE_OPTIONS, *CHECKPOINT_OPTIONS, *LOAD_OPTIONS, *cls.load_options]
        check_known(options, known, what=f"{cls.__name__}")
        where = {key: value for key, value in options.items() if key in SOURCE_OPTIONS}
        asked = {key: value for key, value in options.items() if key in COMPILE_OPTIONS}
        how = {key: value for key, value in options.items() if key in CHECKPOINT_OPTIONS}
        loading = {key: value for key, value in options.items() if key in cls.load_options}
        finding = {key: value for key, value in where.items() if key != "trust_remote_code"}
        require_name(model_id, cls.__name__)
        folder = find_folder(model_id, **finding)
        require_form(folder, str(model_id), export, how)
        trust_remote_code = where.get("trust_remote_code", False)
        if is_export(folder):
            prepared = load_exported(
                folder,
                asked,
                name=str(model_id),
                revision=where.get("revision"),
                config=config,
                trust_remote_code=trust_remote_code,
                host_code=_mode(options),
            )
            cls._check_task(prepared)
            return cls._wrap(prepared)._placed(**loading)
        source = load_source(folder, trust_remote_code=trust_remote_code)
        source = ModelSource(
            name=str(model_id), folder=folder, config=config or source.config, revision=where.get("revision")
        )
        return cls._export(
            source, asked, trust_remote_code=trust_remote_code, host_code=_mode(options), **how, **loading
        )

    @classmethod
    def from_model(cls, module: transformers.PreTrainedModel, **options: Any) -> Self:
        """Compile a transformers model that is in memory.

        Args:
            module: the model; it is not changed. Later changes of its weights do not reach the compiled model.
            **options: as `from_pretrained`, without those that say where a checkpoint is.

        Raises:
            ConfigError: an option is unknown or out of range.
            NeuronError: the model cannot be compiled, see `optimum_neuron/errors.py`.

        Example:
            ```python no-run
            model = NeuronModelForSequenceClassification.from_model(module, batch_size=1, sequence_length=128)
            ```
        """
        options = translate(options, known=COMPILE_OPTIONS)
        check_known(options, [*COMPILE_OPTIONS, *EXPORT_OPTIONS, *LOAD_OPTIONS, *cls.load_options], what=cls.__name__)
        asked = {key: value for key, value in options.items() if key in COMPILE_OPTIONS}
        how = {key: value for key, value in options.items() if key in (*EXPORT_OPTIONS, *cls.load_options)}
        with source_in_memory(module, cls._task(asked) or "auto") as (source, work):
            model = cls._export(source, asked, trust_remote_code=False, host_code=_mode(options), **how)
        model._config_folder = work
        return model

    @classmethod
    def _export(
        cls,
        source: ModelSource,
        asked: dict[str, Any],
        *,
        trust_remote_code: bool,
        host_code: Mode,
        allow_missing_weights: bool = False,
        disable_validation: bool = False,
        atol: float | None = None,
        disable_neuron_cache: bool = False,
        cache_url: str | None = None,
        compiler_workdir: str | Path | None = None,
        **loading: Any,
    ) -> Self:
        task = cls._task(asked)
        cls._require_kind(task, source)
        complete, target = neuron_config(source, {**asked, "task": task}, trust_remote_code=trust_remote_code)
        if not source.has_weights:
            raise ConfigError(
                refusal(
                    asked=f"a model from {source.folder}",
                    found="a configuration without weights",
                    why="a model that runs needs weights",
                    do="pass a folder with safetensors, or compile only, with main_export()",
                ),
                details={"folder": str(source.folder)},
            )
        if allow_missing_weights:
            source = fill_missing(
                source, task=complete.task, dtype=complete.torch_dtype, trust_remote_code=trust_remote_code
            )
        cache = open_cache(disable_neuron_cache, cache_url)
        check_tolerance(atol, validate=not disable_validation)
        every_core = loading.get("data_parallel_mode") == "all"
        # Before the compile: a model that is compiled for minutes has a core when it is ready.
        with claimed(resolve_instance(complete.instance_type).value, model=source.name, every_core=every_core) as claim:
            prepared = prepare(
                source,
                complete,
                target,
                cache=cache,
                validate=not disable_validation,
                atol=atol,
                trust_remote_code=trust_remote_code,
                host_code=host_code,
                claim=claim,
                compiler_workdir=compiler_workdir,
            )
            return cls._wrap(prepared)._placed(**loading)

    def _placed(self) -> Self:
        """Place the loaded model as `load_options` say; a class without such options has nothing to do."""
        return self

    @classmethod
    def _wrap(cls, prepared: Prepared) -> Self:
        """The object of a model; a class may have others for some architectures."""
        return cls(prepared)

    @classmethod
    def _task(cls, asked: dict[str, Any]) -> str:
        """The task of a model: that of the class, or of a class for any the one that was asked for.

        Raises:
            ModelError: the class is for another task than the one that was asked for.
        """
        task = plain_task(asked.get("task") or "auto")
        if cls.task and task in TASKS and task != cls.task:
            raise ModelError(
                refusal(
                    asked=f"{cls.__name__} with task={asked['task']!r}",
                    found=f"a class for {cls.task}",
                    why="its results are those of that task",
                    do=f"use {TASKS[task].model_class}, or leave task out",
                )
            )
        return cls.task if task == "auto" else task

    @classmethod
    def _require_kind(cls, task: str, source: ModelSource) -> None:
        """Refuse an architecture that another class serves, though for the same task.

        Raises:
            ModelError: that class is named.
        """
        if len(kinds_of_task(task)) < 2:
            return
        served = find_task(task, source.config.model_type)
        if served.kind != cls.kind:
            raise ModelError(
                refusal(
                    asked=f"{cls.__name__} of {source.name}",
                    found=f"a {source.config.model_type} model",
                    why=f"for {task}, {served.model_class} serves this architecture",
                    do=f"use {served.model_class}",
                )
            )

    @classmethod
    def _check_task(cls, prepared: Prepared) -> None:
        """Refuse an export for another task; it has other results.

        Raises:
            ModelError: the exported folder serves another task.
        """
        served = find_task(prepared.config.task, prepared.source.config.model_type)
        if cls.task in ("", served.name) and cls.kind in ("", served.kind):
            return
        assert prepared.loaded is not None
        prepared.loaded.close()
        raise ModelError(
            refusal(
                asked=f"{cls.__name__} of {prepared.source.name}",
                found=f"it was exported for {served.name}, a {prepared.source.config.model_type} model",
                why=f"{cls.__name__} serves {cls.task}",
                do=f"use {served.model_class}, or export the checkpoint for {cls.task}",
            )
        )


def _mode(options: Mapping[str, Any]) -> Mode:
    return "wait" if options.get("wait_for_host_code") else "background"
