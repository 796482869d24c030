"""What every compiled model has: `from_pretrained`, `save_pretrained`, `push_to_hub`, `replace_weights`.

A checkpoint is exported, an exported folder is loaded; which of the two a path is decides itself.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
import transformers

from ..configuration import check_known
from ..errors import ConfigError, ModelError, refusal
from ..exporters.export import describe
from ..exporters.folder import is_broken_export, is_export, read_folder
from ..exporters.prepare import Prepared, WorkFolder, open_cache, prepare
from ..exporters.request import COMPILE_OPTIONS, SOURCE_OPTIONS, neuron_config
from ..exporters.save import save_folder
from ..exporters.source import ModelSource, find_folder, load_source
from ..exporters.tasks import find_task, kinds_of_task
from ..runtime.copies import Copies
from ..runtime.executor import Executor
from ..runtime.loaded import LoadedProgram
from ..weights import bind_weights
from .exported import load_exported
from .in_memory import source_in_memory
from .weights import Weights, open_weights

if TYPE_CHECKING:
    from ..simulator import Estimate

logger = logging.getLogger(__name__)

_ESTIMATE_OPTIONS = ["output_length", "sequence_length", "concurrency", "data_parallel_size"]
"""Keywords of an estimate that do not contradict what was compiled."""

EXPORT_OPTIONS = ("disable_validation", "atol", "disable_neuron_cache", "cache_url")


class NeuronModel:
    """A compiled program with the interface that transformers expects of a model."""

    task = ""
    """Task that the class serves; empty: any."""
    kind = ""
    """Kind of models, as `exporters.tasks.Task.kind`, where a task has several."""
    load_options: tuple[str, ...] = ()
    """Keywords of `from_pretrained` that say how a model is loaded, beside those of every model."""

    def __init__(self, prepared: Prepared) -> None:
        assert prepared.loaded is not None, "a model needs weights"
        self.prepared = prepared
        self.config = prepared.source.config
        self.neuron_config = prepared.config
        self.loaded: LoadedProgram = prepared.loaded
        self.copies = Copies([prepared.loaded])
        self._config_folder: WorkFolder | None = None  # of a model that was in memory, as long as this one lives

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
                cache_dir, local_files_only, force_download, trust_remote_code`); and for an export
                `disable_validation, atol, disable_neuron_cache, cache_url`.

        Raises:
            NeuronError: see `optimum_neuron/errors.py`.
        """
        known = [*COMPILE_OPTIONS, *SOURCE_OPTIONS, *EXPORT_OPTIONS, *cls.load_options]
        check_known(options, known, what=f"{cls.__name__}")
        where = {key: value for key, value in options.items() if key in SOURCE_OPTIONS}
        asked = {key: value for key, value in options.items() if key in COMPILE_OPTIONS}
        how = {key: value for key, value in options.items() if key in EXPORT_OPTIONS}
        finding = {key: value for key, value in where.items() if key != "trust_remote_code"}
        folder = find_folder(model_id, **finding)
        if is_export(folder):
            if export:
                raise ConfigError(
                    refusal(
                        asked=f"export=True for {model_id}",
                        found="it has already been exported",
                        why="there is nothing to export",
                        do="leave export out, or pass the checkpoint",
                    )
                )
            prepared = load_exported(
                folder,
                asked,
                name=str(model_id),
                revision=where.get("revision"),
                config=config,
                trust_remote_code=where.get("trust_remote_code", False),
            )
            cls._check_task(prepared)
            return cls._wrap(prepared)
        if is_broken_export(folder) and not export:
            read_folder(folder)  # says what is missing
        if export is False:
            raise ConfigError(
                refusal(
                    asked=f"export=False for {model_id}",
                    found="a plain checkpoint",
                    why="it must be exported before it can run",
                    do="pass export=True",
                )
            )
        if export is None:
            logger.warning(
                "%s is a plain checkpoint: it is exported now. Pass export=True to say so, and "
                "save_pretrained() to keep the result.",
                model_id,
            )
        source = load_source(folder, trust_remote_code=where.get("trust_remote_code", False))
        source = ModelSource(
            name=str(model_id), folder=folder, config=config or source.config, revision=where.get("revision")
        )
        return cls._export(source, asked, trust_remote_code=where.get("trust_remote_code", False), **how)

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
        check_known(options, [*COMPILE_OPTIONS, *EXPORT_OPTIONS, *cls.load_options], what=cls.__name__)
        asked = {key: value for key, value in options.items() if key in COMPILE_OPTIONS}
        how = {key: value for key, value in options.items() if key in EXPORT_OPTIONS}
        with source_in_memory(module, asked.get("task") or cls.task or "auto") as (source, work):
            model = cls._export(source, asked, trust_remote_code=False, **how)
        model._config_folder = work
        return model

    @classmethod
    def _export(
        cls,
        source: ModelSource,
        asked: dict[str, Any],
        *,
        trust_remote_code: bool,
        disable_validation: bool = False,
        atol: float | None = None,
        disable_neuron_cache: bool = False,
        cache_url: str | None = None,
    ) -> Self:
        task = asked.get("task") or cls.task
        cls._require_kind(task, source)
        complete, target = neuron_config(source, {**asked, "task": task}, trust_remote_code=trust_remote_code)
        prepared = prepare(
            source,
            complete,
            target,
            cache=open_cache(disable_neuron_cache, cache_url),
            validate=not disable_validation,
            atol=atol,
            trust_remote_code=trust_remote_code,
        )
        if prepared.loaded is None:
            raise ConfigError(
                refusal(
                    asked=f"a model from {source.folder}",
                    found="a configuration without weights",
                    why="a model that runs needs weights",
                    do="pass a folder with safetensors, or compile only, with main_export()",
                )
            )
        return cls._wrap(prepared)

    @classmethod
    def _wrap(cls, prepared: Prepared) -> Self:
        """The object of a model; a class may have others for some architectures."""
        return cls(prepared)

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

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write an exported folder, which `from_pretrained` and the command line read."""
        if not push_to_hub:
            check_known(kwargs, ["save_directory", "push_to_hub"], what="save_pretrained")
        save_folder(self.prepared, Path(save_directory))
        if push_to_hub:
            self.push_to_hub(save_directory, **kwargs)

    def push_to_hub(
        self,
        save_directory: str | Path,
        repository_id: str,
        private: bool | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        commit_message: str = "Upload exported model",
    ) -> str:
        """Upload an exported folder to the Hub; return the commit's address."""
        from huggingface_hub import HfApi

        folder = Path(save_directory)
        if not is_export(folder):
            save_folder(self.prepared, folder)
        api = HfApi(token=token)
        api.create_repo(repository_id, private=private, exist_ok=True)
        return api.upload_folder(
            repo_id=repository_id, folder_path=folder, revision=revision, commit_message=commit_message
        )

    def replace_weights(self, weights: Weights) -> None:
        """Bind other weights of the same architecture to every copy, without compiling.

        Args:
            weights: folder with safetensors, id on the Hub, state dict, or transformers model; names are those of the
                original checkpoint. Later changes of tensors in memory do not reach the compiled model.

        Raises:
            WeightsError: tensors are missing or have another shape, all of which are named, or the configuration is
                another one; nothing is replaced then.

        Example:
            ```python no-run
            model.replace_weights("fine_tuned")  # or fine_tuned_model.state_dict()
            ```
        """
        opened = open_weights(weights, self.prepared)
        bound = bind_weights(self.loaded.program.weights, self.prepared.weight_sources, opened.tensors.value)
        host = self.prepared.host
        assert host is not None
        executor = Executor(self.loaded.program, host.functions, host.preparations.apply(bound.tensors))
        for loaded in self.copies.loaded:
            loaded.executor = executor
        self.prepared.weights, self.prepared.tensors = bound, opened.tensors
        self.prepared.validation = []  # that was of the weights before
        self.prepared.source = opened.source

    def describe(self) -> dict[str, Any]:
        """Every automatic choice with its reason, memory, validation and timings, as plain data."""
        return describe(self.prepared)

    def estimate(self, *, instance: str | None = None, price: float | None = None, **request: Any) -> Estimate:
        """What the compiled program would take on an instance; every number is simulated.

        Args:
            instance: instance or family; None for the one that it was compiled for.
            price: US dollars for an hour of the instance; None for the published on-demand price.
            **request: `output_length`, `sequence_length`, `concurrency` and `data_parallel_size` of
                `optimum_neuron.simulator.estimate`; shapes are those that were compiled.

        Raises:
            ConfigError: the instance is unknown, or a size is not possible.
        """
        from ..simulator.decoders import DecoderRequest
        from ..simulator.entry import program_estimate
        from ..simulator.machine import choose_machine

        check_known(request, _ESTIMATE_OPTIONS, what="the estimate of a compiled model")
        machine = choose_machine(instance or self.neuron_config.instance_type, price=price)
        name = self.prepared.source.name
        return program_estimate(
            self.prepared.program, self.neuron_config, DecoderRequest(**request), machine, name=name
        )

    @property
    def source_folder(self) -> Path:
        """Folder that the weights come from; its tokenizer fits the model."""
        return self.prepared.source.folder

    @property
    def device(self) -> torch.device:
        """Where inputs are expected."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of weights."""
        return getattr(torch, self.neuron_config.torch_dtype)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Accept the CPU, where inputs are; a compiled program cannot be moved or cast.

        Raises:
            ConfigError: another device or a dtype was asked for.
        """
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if (device is not None and device.type not in ("cpu", "neuron")) or dtype not in (None, self.dtype):
            raise ConfigError(
                refusal(
                    asked=f"to({', '.join(map(str, (*args, *kwargs.values())))})",
                    found=f"a program of {self.dtype} on a simulated {self.neuron_config.target} core",
                    why="a compiled program is neither moved nor cast",
                    do="export with another torch_dtype, or leave to() out",
                )
            )
        return self

    def eval(self) -> Self:
        """A compiled program is always in evaluation mode."""
        return self

    @property
    def training(self) -> bool:
        """Never: the graph was captured for inference."""
        return False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`."""
        return self.forward(*args, **kwargs)  # type: ignore[attr-defined]
