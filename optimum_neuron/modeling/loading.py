"""`from_pretrained` and `from_model` of every compiled model.

A checkpoint is exported, an exported folder is loaded; the folder decides which. `model.py` has the methods of a loaded
model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Self

import transformers

from ..base.transformers_types import PreTrainedConfig
from ..compiler.cache import open_cache
from ..compiler.lower import Mode
from ..errors import ConfigError, ModelError, NotExportedError, invalid_choice
from ..exporters import (
    Prepared,
    check_tolerance,
    load_exported,
    neuron_config,
    prepare,
    read_folder,
    refuse_vendor_export,
    translate,
)
from ..files.atomic import WorkFolder
from ..hardware import resolve_instance
from ..kinds import compile_options
from ..options.configuration import DEGREES, is_broken_export, is_export, is_plain, num_cores_of
from ..options.option import EXPORT_HELP, SOURCE_OPTIONS, check_known, source_options
from ..options.peer_attributes import follows_upstream
from ..runtime import claimed
from ..sources import TASKS, ModelSource, fill_missing, find_folder, find_task, kinds_of_task, load_source, plain_task
from .in_memory import source_in_memory
from .model import CompiledModel

EXPORT_OPTIONS = ("disable_validation", "atol", "disable_neuron_cache", "cache_url", "compiler_workdir")

CHECKPOINT_OPTIONS = (*EXPORT_OPTIONS, "allow_missing_weights")
"""Keywords of the export of a checkpoint; a model in memory always has all weights."""

LOAD_OPTIONS = ("wait_for_host_code",)
"""Keywords of loading, for checkpoints and exported folders."""


class NeuronModel(CompiledModel):
    """A compiled program with the interface that transformers expects of a model."""

    task = ""
    """Task of the class; empty for any task."""
    kind = ""
    """Kind of model, as `exporters.tasks.Task.kind`, if the task has several."""
    load_options: Mapping[str, tuple[str, ...]] = {}
    """Keywords of loading with their choices, in addition to `LOAD_OPTIONS`."""

    _config_folder: WorkFolder | None = None
    """Configuration of a model that was in memory; deleted with this object."""

    @classmethod
    def from_pretrained(
        cls, model_id: str | Path, config: PreTrainedConfig | None = None, export: bool | None = None, **options: object
    ) -> Self:
        """Load an exported folder, or export a checkpoint.

        Args:
            model_id: folder, Hub model ID, or name in `optimum_neuron.checkpoints`.
            config: transformers configuration to use instead of the checkpoint's; that of an exported folder is fixed.
            export: True exports a checkpoint, False requires an exported folder, None accepts both.
            **options: fields of `NeuronConfig` and `instance_type`; the location of the model (`subfolder, gguf_file,
                revision, token, cache_dir, local_files_only, force_download, trust_remote_code`); for an export
                `disable_validation, atol, disable_neuron_cache, cache_url, compiler_workdir, allow_missing_weights`;
                and `wait_for_host_code`: True returns once all host code is compiled, False at once, and blocks run
                operator by operator until their code is ready. A class may have more, see there. Keywords of Optimum
                Neuron without a meaning here are accepted (`exporters/peer_options.py`).

        Raises:
            NeuronError: see `optimum_neuron/errors.py`.
        """
        options = cls._checked(options, (*SOURCE_OPTIONS, *CHECKPOINT_OPTIONS))
        location = source_options(options)
        trust_remote_code = location.get("trust_remote_code", False)
        shapes, how = cls._shapes(options), _subset(options, CHECKPOINT_OPTIONS)
        loading = _subset(options, cls.load_options)
        require_name(model_id, cls.__name__)
        folder = find_folder(model_id, **location)
        require_form(folder, str(model_id), export, how)
        if is_export(folder):
            prepared = load_exported(
                folder,
                shapes,
                name=str(model_id),
                revision=location.get("revision"),
                config=config,
                trust_remote_code=trust_remote_code,
                host_code=_mode(options),
            )
            cls._check_task(prepared)
            return cls._wrap(prepared)._placed(**loading)
        source = load_source(folder, trust_remote_code=trust_remote_code)
        source = ModelSource(
            name=str(model_id), folder=folder, config=config or source.config, revision=location.get("revision")
        )
        return cls._export(
            source, shapes, trust_remote_code=trust_remote_code, host_code=_mode(options), **how, **loading
        )

    @classmethod
    def from_model(cls, module: transformers.PreTrainedModel, **options: object) -> Self:
        """Compile a transformers model that is in memory.

        Args:
            module: the model, which is not changed. Later changes of its weights do not reach the compiled model.
            **options: as in `from_pretrained`, without the location of a checkpoint.

        Raises:
            ConfigError: an option is unknown or out of range.
            NeuronError: the model cannot be compiled, see `optimum_neuron/errors.py`.

        Example:
            ```python no-run
            model = NeuronModelForSequenceClassification.from_model(module, batch_size=1, sequence_length=128)
            ```
        """
        options = cls._checked(options, EXPORT_OPTIONS)
        shapes, how = cls._shapes(options), _subset(options, (*EXPORT_OPTIONS, *cls.load_options))
        with source_in_memory(module, cls._task(shapes) or "auto") as (source, work):
            model = cls._export(source, shapes, trust_remote_code=False, host_code=_mode(options), **how)
        model._config_folder = work
        return model

    @classmethod
    def _checked(cls, options: dict[str, Any], more: Collection[str]) -> dict[str, Any]:
        """Options by their names here, after a check that they are known, before anything is compiled."""
        options = translate(options)
        known = [*compile_options(), *more, *LOAD_OPTIONS, *cls.load_options]
        check_known(options, known, what=cls.__name__, listed=EXPORT_HELP)
        for name, choices in cls.load_options.items():
            if name in options and options[name] not in choices:
                raise invalid_choice(name, options[name], choices)
        return options

    @classmethod
    def _shapes(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of a compile; one that this class has at loading, other kinds may have in their configuration."""
        return _subset(options, [name for name in compile_options() if name not in cls.load_options])

    @classmethod
    def _export(
        cls,
        source: ModelSource,
        shapes: dict[str, Any],
        *,
        trust_remote_code: bool,
        host_code: Mode,
        allow_missing_weights: bool | None = None,
        disable_validation: bool = False,
        atol: float | None = None,
        disable_neuron_cache: bool = False,
        cache_url: str | None = None,
        compiler_workdir: str | Path | None = None,
        **loading: object,
    ) -> Self:
        task = cls._task(shapes)
        cls._require_kind(task, source)
        complete, target = neuron_config(source, {**shapes, "task": task}, trust_remote_code=trust_remote_code)
        if not source.has_weights:
            hint = "Pass a folder with safetensors, or only compile it with main_export()."
            raise ConfigError(f"{source.folder} has no weights.", hint=hint, folder=str(source.folder))
        if allow_missing_weights:
            source = fill_missing(
                source, task=complete.task, dtype=complete.torch_dtype, trust_remote_code=trust_remote_code
            )
        cache = open_cache(disable_neuron_cache, cache_url)
        check_tolerance(atol, validate=not disable_validation)
        every_core = loading.get("data_parallel_mode") == "all"
        # Claim before the compile, which may take minutes: the model must get a core afterwards.
        num_cores = num_cores_of(complete)
        if every_core:
            require_one_core_each(num_cores)
        instance = resolve_instance(complete.instance_type).value
        with claimed(instance, model=source.name, num_cores=num_cores, every_core=every_core) as claim:
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
                fill_head=allow_missing_weights is not False,
            )
            return cls._wrap(prepared)._placed(**loading)

    def _placed(self) -> Self:
        """Place the loaded model as `load_options` request; the default does nothing."""
        return self

    @classmethod
    def _wrap(cls, prepared: Prepared) -> Self:
        """Return the object of a model; a class may have subclasses for some architectures."""
        return cls(prepared)

    @classmethod
    def _task(cls, options: dict[str, Any]) -> str:
        """Return the task of a model: that of the class, else that of the options."""
        task = plain_task(options.get("task") or "auto")
        if cls.task and task in TASKS and task != cls.task:
            name, other = options["task"], TASKS[task].model_class
            message = f"{cls.__name__} is for {cls.task}, not {name}."
            raise ModelError(message, hint=f"Use {other}, or remove task.", task=name, model_class=other)
        return cls.task if task == "auto" else task

    @classmethod
    def _require_kind(cls, task: str, source: ModelSource) -> None:
        """Check that the class serves the architecture, where several classes share the task."""
        if len(kinds_of_task(task)) < 2:
            return
        model_type = source.config.model_type
        served = find_task(task, model_type)
        if served.kind != cls.kind:
            name = served.model_class
            message = f"{cls.__name__} does not support {source.name}, a {model_type} model."
            raise ModelError(message, hint=f"Use {name}.", model_type=model_type, model_class=name)

    @classmethod
    def _check_task(cls, prepared: Prepared) -> None:
        """Check that an exported folder is for the task of the class."""
        served = find_task(prepared.config.task, prepared.source.config.model_type)
        if cls.task in ("", served.name) and cls.kind in ("", served.kind):
            return
        assert prepared.loaded is not None
        prepared.loaded.close()
        name, source = served.model_class, prepared.source
        exported = f"{source.name}, a {source.config.model_type} model, was exported for {served.name}"
        hint = f"Use {name}, or export the checkpoint for {cls.task}."
        message = f"{exported}, but {cls.__name__} is for {cls.task}."
        raise ModelError(message, hint=hint, task=served.name, model_class=name)


def require_one_core_each(num_cores: int) -> None:
    """Check that a model of which every core shall have a replica needs one core."""
    if num_cores > 1:
        message = f"data_parallel_mode='all' puts a replica on every core, but this model takes {num_cores} cores."
        hint = f"Pass 1 for {' and '.join(DEGREES)}, or data_parallel_mode='none'."
        raise ConfigError(message, hint=hint, options=["data_parallel_mode", *DEGREES])


def _subset(options: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _mode(options: Mapping[str, Any]) -> Mode:
    return "wait" if options.get("wait_for_host_code") else "background"


logger = logging.getLogger(__name__)


def require_name(model_id: object, model_class: str) -> None:
    """Check that `model_id` is a name or a path."""
    if isinstance(model_id, (str, os.PathLike)):
        return
    kind, method, hint = type(model_id).__name__, None, "Pass a string or a path."
    if any(base.__module__.startswith("torch.nn") for base in type(model_id).__mro__):
        method, hint = "from_model", f"Call {model_class}.from_model(model)."
    message = f"from_pretrained takes a folder, a Hub model ID, or a catalogue name, not a {kind}."
    raise ConfigError(message, hint=hint, type=kind, method=method)


def require_form(folder: Path, name: str, export: bool | None, how: dict[str, Any]) -> None:
    """Check that an export is not exported again, and that a checkpoint may be exported.

    A checkpoint is exported with a warning if `export` is None; Optimum Neuron's rules require True.
    """
    if is_export(folder):
        options = {key: value for key, value in {"export": export, **how}.items() if value not in (None, False)}
        if options:
            given = ", ".join(f"{key}={value}" for key, value in options.items())
            hint = f"Remove {' and '.join(options)}, or pass the checkpoint."
            message = f"{name} has already been exported, so {given} has no effect."
            raise ConfigError(message, hint=hint, options=options)
        return
    if not is_plain(folder):
        refuse_vendor_export(folder)
        if is_broken_export(folder) and not export:
            read_folder(folder)  # reports missing keys
    if export is False or (export is None and follows_upstream()):
        raise not_exported(name, export)
    if export is None:
        advice = "Pass export=True to say so, and save_pretrained() to keep the result."
        logger.warning("%s is a plain checkpoint: it is exported now. %s", name, advice)


def not_exported(name: str, export: bool | None) -> NotExportedError:
    """Return the error for a checkpoint that may not be exported."""
    message = f"{name} is a plain checkpoint, which must be exported before it can run."
    return NotExportedError(message, hint="Pass export=True.", option="export", value=export)
