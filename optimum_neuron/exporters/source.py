"""Find the model that a user named: a folder, a catalogue name, or an id on the Hub.

It returns a local folder and the transformers configuration in it; weights are not touched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core import Choice
from ..errors import ModelError, nearest, refusal
from ..plain_json import parse_json
from .quantization import require_readable
from .tasks import SYNONYMS, TASKS, other_tasks, plain_task, task_of, tasks_of

_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py", "*.neuron"]
_CONFIGURATION = ["*config*.json", "model_index.json", "modules.json", "*.py"]
"""What decides a program: configurations of model, processors and generation, and code."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A checkpoint on this machine."""

    name: str
    """What the user wrote."""
    folder: Path
    """Where its files are."""
    config: Any
    """Its transformers configuration."""
    revision: str | None
    """Revision that was asked for."""
    module: Any = None
    """The model itself, where it is in memory: the folder has its configuration only, or not all weights."""
    random_weights: tuple[str, ...] = ()
    """Weights that the checkpoint does not have and that transformers filled with random numbers, as allowed."""

    @property
    def has_weights(self) -> bool:
        """Whether there is anything to bind; a configuration alone can be compiled too."""
        in_folder = any(self.folder.glob("*.safetensors")) or any(self.folder.glob("*.bin"))
        return self.module is not None or in_folder


def find_folder(
    name: str | Path,
    *,
    subfolder: str = "",
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    with_weights: bool = True,
) -> Path:
    """Return the local folder of a model, downloading it from the Hub where necessary.

    Args:
        name: folder, id on the Hub, or name in `optimum_neuron.checkpoints`.
        subfolder: where in the repository the model is.
        revision: branch, tag or commit.
        token: of the Hub.
        cache_dir: folder of downloads.
        local_files_only: download nothing.
        force_download: download what is here already.
        with_weights: False downloads what decides a program, and neither weights nor tokenizers.

    Raises:
        ModelError: there is no such folder and no such model on the Hub.
    """
    from ..checkpoints import resolve_model

    path = Path(resolve_model(str(name)).value).expanduser()
    if not path.is_dir():
        if path.exists() or str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:
            siblings = [p.name for p in path.parent.iterdir() if p.is_dir()] if path.parent.is_dir() else []
            raise ModelError(
                refusal(
                    asked=f"model {str(name)!r}",
                    found="a file" if path.exists() else "no such folder" + nearest(path.name, siblings),
                    why="a model is a folder with a config.json",
                    do="check the path, or pass an id of the Hub such as org/name",
                ),
                details={"model": str(name)},
            )
        path = _download(
            str(name),
            revision=revision,
            token=token,
            cache_dir=cache_dir,
            local_files_only=local_files_only,
            force_download=force_download,
            allow_patterns=_FILES if with_weights else _CONFIGURATION,
        )
    return path / subfolder if subfolder else path


def _download(name: str, **options: Any) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    from ..checkpoints.catalogue import CHECKPOINTS

    try:
        return Path(snapshot_download(name, **options))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ModelError(
            refusal(
                asked=f"model {name!r}",
                found=f"neither a folder here nor to be had from the Hub "
                f"({type(error).__name__}: {str(error).strip().splitlines()[0]})"
                + nearest(name, [known for entry in CHECKPOINTS for known in (entry.name, *entry.aliases)]),
                why="a model is a local folder or an id of the Hub",
                do="check the name, log in with `hf auth login` for private models, or try `smollm2`, which comes "
                "from a package index",
            ),
            details={"model": name},
        ) from error


def load_source(name: str | Path, *, trust_remote_code: bool = False, **options: Any) -> ModelSource:
    """Find a model and read its configuration.

    Raises:
        ModelError: the folder holds no readable configuration, or an architecture that transformers lacks.
    """
    folder = find_folder(name, **options)
    return ModelSource(
        name=str(name),
        folder=folder,
        revision=options.get("revision"),
        config=read_config(folder, trust_remote_code=trust_remote_code),
    )


def read_config(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Read the transformers configuration of a folder.

    Raises:
        ModelError: there is none, its architecture is unknown, or its weights are quantized in a way that cannot be
            dequantized.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import CONFIG_MAPPING, AutoConfig

    path = folder / "config.json"
    if not path.is_file():
        what = "an empty folder" if folder.is_dir() and not any(folder.iterdir()) else "no config.json in it"
        do = "pass a folder that save_pretrained() wrote"
        if (folder / "adapter_config.json").is_file():
            what = "an adapter of PEFT, without the model that it changes"
            do = f"pass the base model, and the adapter with --adapter {folder} (Python: main_export(adapter=...))"
        raise ModelError(
            refusal(
                asked=f"model folder {folder}",
                found=what if folder.is_dir() else "no such folder",
                why="the configuration says which architecture to build",
                do=do,
            ),
            details={"model": str(folder)},
        )
    try:
        data = parse_json(path.read_bytes())
        if not isinstance(data, dict):
            raise ValueError(f"a JSON {type(data).__name__} instead of an object")
        model_type = data.get("model_type")
        if model_type not in CONFIG_MAPPING and "auto_map" not in data:
            raise ModelError(
                refusal(
                    asked=f"architecture model_type={model_type!r} of {folder}",
                    found=f"transformers has no such architecture{nearest(str(model_type), CONFIG_MAPPING)}",
                    why="the model is built from transformers' code",
                    do="upgrade transformers or check config.json",
                )
            )
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        require_readable(config, asked=f"reading the model in {folder}")
        return config
    except ModelError:
        raise
    except (ValueError, OSError, LookupError, TypeError, AttributeError, ImportError, StrictDataclassError) as error:
        raise ModelError(
            refusal(
                asked=f"configuration {path}",
                found=f"{type(error).__name__}: {' '.join(str(error).split())}",
                why="transformers cannot read it",
                do="check the file; for code from the checkpoint pass trust_remote_code=True",
            ),
            details={"model": str(folder)},
        ) from error


def infer_task(config: Any, task: str = "auto") -> Choice[str]:
    """Choose the task from `config.architectures`, or check the one that was asked for.

    Raises:
        ModelError: the task is unknown, or the architecture serves none that can be exported.
    """
    if task != "auto":
        asked, task = task, plain_task(task)
        if task in other_tasks():
            raise _not_supported(f"The task {task}", task)
        if task not in TASKS:
            raise ModelError(
                refusal(
                    asked=f"task={task!r}",
                    found=f"not a task that can be exported{nearest(task, [*TASKS, *SYNONYMS])}",
                    why=f"tasks are {', '.join(TASKS)}",
                    do="pass one of them or leave it to be inferred",
                )
            )
        if TASKS[task].kind == "decoder":
            _require_decoder(config)
        return Choice(value=task, reason="asked for by name" if asked == task else f"asked for as {asked}")
    if (served := served_task(config)) is not None:
        return served
    served_tasks = tasks_of(config.model_type)
    if config.architectures or not served_tasks:
        heads = ", ".join(config.architectures or ()) or f"A {config.model_type} model"
        raise _not_supported(heads, None, without_head=served_tasks)
    raise ModelError(
        refusal(
            asked=f"the task of a {config.model_type} model",
            found="config.json does not list its architectures",
            why="they say what the model is for",
            do=f"pass the task: {', '.join(served_tasks)}",
        )
    )


def _not_supported(what: str, task: str | None, *, without_head: Sequence[str] = ()) -> ModelError:
    """The error for a task that transformers has and this package does not export."""
    other = f" The checkpoint can be exported with another head for {', '.join(without_head)}." if without_head else ""
    return ModelError(
        f"{what} is not supported by the export. Compile the model with torch_neuronx.trace, which takes any example "
        f"inputs.{other}",
        details={"task": task, "other_tasks": list(without_head)},
    )


def _require_decoder(config: Any) -> None:
    """Refuse what generates no text, however it was asked for.

    Raises:
        ModelError: transformers has no causal language model of this architecture, or the checkpoint is another one.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    architectures = list(config.architectures or ())
    other = architectures and not any(name.endswith(TASKS["text-generation"].suffixes) for name in architectures)
    encodes = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", None) is False
    if config.model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not hasattr(config, "auto_map"):
        found = "transformers has no causal language model of this architecture"
    elif other and encodes:
        found = f"the checkpoint is a {architectures[0]}, which encodes its input"
    else:
        return
    raise ModelError(
        refusal(
            asked=f"text-generation with a {config.model_type} model",
            found=found,
            why="text is generated by a decoder that predicts the next token",
            do="pass a checkpoint whose config.architectures ends in ForCausalLM or LMHeadModel",
        )
    )


def served_task(config: Any) -> Choice[str] | None:
    """The task that `config.architectures` says the model is for, or None where it says nothing known."""
    for architecture in config.architectures or ():
        if (served := task_of(architecture)) is not None:
            return Choice(value=served, reason=f"config.architectures has {architecture}")
    return None
