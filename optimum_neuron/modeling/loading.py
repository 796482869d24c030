"""What every compiled model has: `from_pretrained`, `save_pretrained`, `push_to_hub`, `replace_weights`.

A checkpoint is exported, an exported folder is loaded; which of the two a path is decides itself.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Self

import torch

from ..compiler.lower.lower import lower
from ..compiler.memory import memory_need
from ..compiler.neff import check_target, open_neff
from ..compiler.package import WEIGHTS_MEMBER, read_program
from ..configuration import check_known
from ..core import Choice
from ..errors import ConfigError, refusal
from ..exporters.export import describe
from ..exporters.folder import NEFF_FILE, FolderInfo, is_export, read_folder, save_folder, verify_weights
from ..exporters.prepare import Prepared, open_cache, prepare
from ..exporters.request import COMPILE_OPTIONS, SOURCE_OPTIONS, neuron_config
from ..exporters.source import ModelSource, find_folder, load_source, read_config
from ..exporters.tensors import open_tensors
from ..hardware import resolve_instance, resolve_target
from ..runtime.executor import Executor
from ..runtime.loaded import LoadedProgram, load_program
from ..weights import Checkpoint, bind_weights
from ..weights.mapped import MappedFile

logger = logging.getLogger(__name__)

EXPORT_OPTIONS = ("disable_validation", "atol", "disable_neuron_cache", "cache_url")


class NeuronModel:
    """A compiled program with the interface that transformers expects of a model."""

    task = ""

    def __init__(self, prepared: Prepared) -> None:
        assert prepared.loaded is not None, "a model needs weights"
        self.prepared = prepared
        self.config = prepared.source.config
        self.neuron_config = prepared.config
        self.loaded: LoadedProgram = prepared.loaded

    @classmethod
    def from_pretrained(
        cls, model_id: str | Path, config: Any = None, export: bool | None = None, **options: Any
    ) -> Self:
        """Load an exported folder, or export a checkpoint.

        Args:
            model_id: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
            config: a transformers configuration to use instead of the folder's.
            export: True exports a checkpoint, False requires an exported folder, None does what fits.
            **options: fields of `NeuronConfig` and `instance_type`; where the model is (`subfolder, revision, token,
                cache_dir, local_files_only, force_download, trust_remote_code`); and for an export
                `disable_validation, atol, disable_neuron_cache, cache_url`.

        Raises:
            NeuronError: see `optimum_neuron/errors.py`.
        """
        check_known(options, [*COMPILE_OPTIONS, *SOURCE_OPTIONS, *EXPORT_OPTIONS], what=f"{cls.__name__}")
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
            return cls(_load_exported(folder, asked, trust_remote_code=where.get("trust_remote_code", False)))
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
        complete, target = neuron_config(source, {"task": cls.task, **asked})
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
        return cls(prepared)

    def save_pretrained(self, save_directory: str | Path, push_to_hub: bool = False, **kwargs: Any) -> None:
        """Write an exported folder, which `from_pretrained` and the command line read."""
        save_folder(self.prepared, Path(save_directory))
        if push_to_hub:
            self.push_to_hub(save_directory, **kwargs)
        elif kwargs:
            check_known(kwargs, ["save_directory", "push_to_hub"], what="save_pretrained")

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

    def replace_weights(self, weights: str | Path) -> None:
        """Bind another checkpoint of the same architecture, without compiling.

        Args:
            weights: folder with safetensors under the original checkpoint's names.

        Raises:
            WeightsError: tensors are missing or have another shape; nothing is replaced then.
        """
        folder = find_folder(weights)
        tensors = open_tensors(
            folder, self.prepared.weight_sources, family=self.prepared.family, dtype=self.neuron_config.torch_dtype
        )
        bound = bind_weights(self.loaded.program.weights, self.prepared.weight_sources, tensors.value)
        assert self.prepared.host is not None
        self.loaded.executor = Executor(self.loaded.program, self.prepared.host.functions, bound.tensors)
        self.prepared.weights, self.prepared.tensors = bound, tensors
        self.prepared.source = ModelSource(name=str(weights), folder=folder, config=self.config, revision=None)

    def describe(self) -> dict[str, Any]:
        """Every automatic choice with its reason, memory, validation and timings, as plain data."""
        return describe(self.prepared)

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
        """Dtype of weights and cache."""
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


def _load_exported(folder: Path, asked: dict[str, Any], *, trust_remote_code: bool) -> Prepared:
    info = read_folder(folder)
    _check_asked(info, asked, folder)
    verify_weights(folder, info.artifact)
    target = resolve_target(asked.get("instance_type") or info.config.instance_type)
    instance = resolve_instance(asked.get("instance_type") or info.config.instance_type).value
    with open_neff(folder / NEFF_FILE) as neff:
        check_target(neff, target.value.name, target.value.core.generation)
        program, metadata = read_program(neff), dict(neff.metadata)
        inlined = neff.read(WEIGHTS_MEMBER) if WEIGHTS_MEMBER in neff.names else None
    source = ModelSource(
        name=str(folder), folder=folder, revision=None, config=read_config(folder, trust_remote_code=trust_remote_code)
    )
    prepared = Prepared(
        source=source,
        config=info.config,
        target=target,
        neff=folder / NEFF_FILE,
        cache=Choice(value=folder / NEFF_FILE, reason="hit: loaded from the exported folder"),
        program=program,
        metadata=metadata,
        need=memory_need(program),
    )
    checkpoint = (
        Checkpoint.open(folder)
        if inlined is None
        else Checkpoint([MappedFile(inlined, NEFF_FILE)], str(folder / NEFF_FILE))
    )
    prepared.tensors = Choice(value=checkpoint, reason="mapped from the exported folder")
    prepared.weights = bind_weights(program.weights, prepared.weight_sources, checkpoint)
    prepared.host = lower(program, optlevel=asked.get("optlevel") or info.config.optlevel)
    prepared.loaded = load_program(
        program, prepared.weights.tensors, prepared.host, instance=instance, target=target.value, model_name=folder.name
    )
    return prepared


def _check_asked(info: FolderInfo, asked: dict[str, Any], folder: Path) -> None:
    """Options of an exported folder are fixed; the host's effort and the instance size are not.

    Raises:
        ConfigError: an option contradicts what was compiled; all are listed.
    """
    saved = info.config.to_dict()
    free = ("optlevel", "instance_type")
    wrong = [
        f"{key}={value!r}, compiled with {saved[key]!r}"
        for key, value in asked.items()
        if value is not None and key not in free and saved[key] != (list(value) if isinstance(value, tuple) else value)
    ]
    if wrong:
        raise ConfigError(
            refusal(
                asked=f"loading {folder} with other options",
                found="; ".join(wrong),
                why="shapes and arithmetic are fixed at export",
                do="leave the options out, or export the checkpoint again with them",
            )
        )
