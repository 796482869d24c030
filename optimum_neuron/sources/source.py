"""Find the model that a user named: a folder, a catalogue name, or a Hub model ID.

It returns a local folder and the transformers configuration in it; weights are not touched.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..base.core import Choice
from ..base.foreign import module_facts
from ..base.model_facts import facts_of
from ..base.transformers_types import PreTrainedConfig
from ..base.wording import first_line
from ..errors import ModelError, nearest
from ..files.plain_json import parse_json
from ..options.option import SOURCE_OPTIONS, SourceOptions, check_known
from ..weights import Checkpoint
from .file_types import require_sizes
from .gguf import gguf_folder, is_gguf
from .pipeline_index import DiffusersConfig, is_pipeline, read_index
from .quantization import require_readable
from .tasks import SYNONYMS, TASKS, other_tasks, plain_task, task_of, tasks_of

_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.py", "*.neuron"]
CONFIGURATION_FILES = ["*config*.json", "model_index.json", "modules.json", "*.py"]
"""Files that decide a program: configurations of model, processors and generation, and code."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A checkpoint on this machine."""

    name: str
    """Model argument as the user typed it."""
    folder: Path
    config: Any
    """Its transformers configuration."""
    revision: str | None
    """Branch, tag, or commit on the Hub, as the user wrote it."""
    module: Any = None
    """The model itself, where it is in memory: the folder has its configuration only, or not all weights."""
    random_weights: tuple[str, ...] = ()
    """Weights that the checkpoint does not have and that transformers filled with random numbers, as allowed."""

    @property
    def has_weights(self) -> bool:
        """Whether there are weights to bind; a configuration alone can be compiled too."""
        in_folder = any(self.folder.glob("*.safetensors")) or any(self.folder.glob("*.bin"))
        return self.module is not None or in_folder or is_gguf(self.folder)


def find_folder(name: str | Path, *, with_weights: bool = True, **options: Any) -> Path:
    """Return the local folder of a model, downloading it from the Hub where necessary.

    Args:
        name: folder, Hub model ID, or name in `optimum_neuron.checkpoints`; or a GGUF file.
        with_weights: False downloads the files that decide a program, and neither weights nor tokenizers.
        **options: fields of `SourceOptions`.

    Raises:
        ConfigError: a keyword is unknown.
        ModelError: there is no such folder and no such model on the Hub, or a GGUF file cannot be read.
    """
    check_known(options, SOURCE_OPTIONS, what="finding a model")
    where, path = SourceOptions(**options), Path(name).expanduser()
    if not path.is_dir():
        from ..checkpoints import resolve_model

        path = Path(resolve_model(str(name)).value).expanduser()
    if path.suffix == ".gguf" and path.is_file() and where.gguf_file is None:
        return gguf_folder(path.parent, path.name)
    if not path.is_dir():
        if path.exists() or str(name).startswith((".", "/", "~")) or str(name).count("/") > 1:
            raise _missing_folder(str(name), path)
        files = [f"*{where.gguf_file}"] if where.gguf_file else _FILES if with_weights else CONFIGURATION_FILES
        path = _download(str(name), where, patterns=files)
    path = path / where.subfolder if where.subfolder else path
    return gguf_folder(path, where.gguf_file) if where.gguf_file else path


def _missing_folder(name: str, path: Path) -> ModelError:
    hint = "Pass a folder with a config.json, or a Hub model ID such as org/name."
    if path.exists():
        return ModelError(f"The model {name!r} is a file, not a folder.", hint=hint, model=name, reason="file")
    siblings = [sibling.name for sibling in path.parent.iterdir() if sibling.is_dir()] if path.parent.is_dir() else []
    guess = nearest(path.name, siblings) or "."
    return ModelError(f"The model folder {name!r} does not exist{guess}", hint=hint, model=name, reason="missing")


def _download(name: str, where: SourceOptions, *, patterns: list[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    from ..checkpoints import CHECKPOINTS

    names = ("revision", "token", "cache_dir", "local_files_only", "force_download")
    options = {option: getattr(where, option) for option in names}
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, **options))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        guess = nearest(name, [known for entry in CHECKPOINTS for known in (entry.name, *entry.aliases)]) or "."
        message = f"The model {name!r} is not a local folder and cannot be downloaded from the Hub{guess}"
        hint = "Check the name, log in with `hf auth login` for private models, or try `smollm2`, which needs no Hub."
        raise ModelError(f"{message} ({first_line(error)})", hint=hint, model=name, error=first_line(error)) from error


def load_source(name: str | Path, *, with_weights: bool = True, **options: Any) -> ModelSource:
    """Find a model, as `find_folder` does, and read its configuration."""
    folder = find_folder(name, with_weights=with_weights, **options)
    config = read_config(folder, trust_remote_code=options.get("trust_remote_code", False))
    if with_weights:
        untie_own_head(config, folder)
    return ModelSource(name=str(name), folder=folder, revision=options.get("revision"), config=config)


def read_config(folder: Path, *, trust_remote_code: bool = False) -> Any:
    """Read the transformers configuration of a folder."""
    from transformers import CONFIG_MAPPING, AutoConfig

    path = folder / "config.json"
    if not path.is_file() and is_pipeline(folder):
        return read_index(folder)
    if not path.is_file():
        raise _missing_config(folder)
    try:
        data = parse_json(path.read_bytes())
        if not isinstance(data, dict):
            raise ValueError(f"a JSON {type(data).__name__} instead of an object")
        require_sizes(data, path)
        if "_class_name" in data:
            return DiffusersConfig(data)
        model_type = data.get("model_type")
        if model_type is None and "auto_map" not in data:
            message = f"{path} has no model_type, so its architecture is unknown."
            hint = 'Add it, for example "model_type": "bert".'
            raise ModelError(message, hint=hint, folder=str(folder), model_type=None)
        if model_type not in CONFIG_MAPPING and "auto_map" not in data:
            guess = nearest(str(model_type), CONFIG_MAPPING) or "."
            message = f"transformers has no architecture with model_type={model_type!r} ({folder}){guess}"
            hint = "Upgrade transformers or check config.json."
            raise ModelError(message, hint=hint, folder=str(folder), model_type=model_type)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        require_readable(config, model=str(folder))
        return config
    except ModelError:
        raise
    except unreadable_errors() as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        message = f"transformers cannot read {path}: {problem}"
        hint = "Check the file; for code from the checkpoint pass trust_remote_code=True."
        raise ModelError(message, hint=hint, model=str(folder), error=problem) from error


def unreadable_errors() -> tuple[type[Exception], ...]:
    """Return what transformers raises for a configuration that it cannot use."""
    from huggingface_hub.errors import StrictDataclassError

    common = (ValueError, OSError, LookupError, TypeError, AttributeError, ImportError, StrictDataclassError)
    return (*common, ArithmeticError, AssertionError, RecursionError, NotImplementedError)


def _missing_config(folder: Path) -> ModelError:
    hint = "Pass a folder that save_pretrained() wrote."
    if not folder.is_dir():
        reason, problem = "missing", "does not exist"
    elif (folder / "adapter_config.json").is_file():
        reason, problem = "adapter", "is a PEFT adapter without its base model"
        hint = f"Pass the base model, and the adapter with --adapter {folder} (Python: main_export(adapter=...))."
    elif any(folder.iterdir()):
        reason, problem = "no_config", "has no config.json"
    else:
        reason, problem = "empty", "is empty"
    return ModelError(f"The model folder {folder} {problem}.", hint=hint, model=str(folder), reason=reason)


def infer_task(config: PreTrainedConfig, task: str = "auto") -> Choice[str]:
    """Choose the task from `config.architectures`, or check the requested one."""
    if task != "auto":
        name = require_known_task(task)
        return Choice(value=name, reason="requested by name" if name == task else f"requested as {task}")
    if (served := served_task(config)) is not None:
        return served
    tasks = tasks_of(config.model_type)
    if config.architectures or not tasks:
        heads = ", ".join(config.architectures or ()) or f"A {config.model_type} model"
        raise _not_supported(heads, None, other_heads=tasks, model_type=config.model_type)
    message = f"The task of a {config.model_type} model is unknown, because config.json lists no architectures."
    raise ModelError(message, hint=f"Pass the task: {', '.join(tasks)}.", model_type=config.model_type, tasks=tasks)


def require_known_task(task: str) -> str:
    """Return a task under its name here."""
    name = plain_task(task)
    if name in TASKS:
        return name
    if name in other_tasks():
        raise _not_supported(f"The task {name}", name)
    message = f"The task {task!r} is unknown{nearest(task, [*TASKS, *SYNONYMS]) or '.'}"
    raise ModelError(message, hint=f"Pass one of {', '.join(TASKS)}.", task=task, choices=list(TASKS))


def _not_supported(subject: str, task: str | None, *, other_heads: Sequence[str] = (), **details: object) -> ModelError:
    """Return the error for a task that transformers has and this package does not export."""
    hint = "Compile the model with torch_neuronx.trace, which takes any example inputs."
    hint += f" The checkpoint can be exported with another head for {', '.join(other_heads)}." if other_heads else ""
    details |= {"task": task, "other_tasks": list(other_heads)}
    return ModelError(f"{subject} is not supported by the export.", hint=hint, **details)


def served_task(config: PreTrainedConfig) -> Choice[str] | None:
    """Return the task that `config.architectures` names, or None if it names no known one."""
    for architecture in config.architectures or ():
        if (served := task_of(architecture)) is not None:
            return Choice(value=served, reason=f"config.architectures has {architecture}")
    return None


logger = logging.getLogger(__name__)


def untie_own_head(config: PreTrainedConfig, folder: Path) -> None:
    """Set `tie_word_embeddings` to False if the files have two different matrices, as transformers does."""
    if not facts_of(config).tie_word_embeddings or not any(folder.glob("*.safetensors")):
        return
    checkpoint = Checkpoint.open(folder)
    shapes = collections.Counter(spec.shape for spec in checkpoint.specs.values() if len(spec.shape) > 1)
    num_tokens = facts_of(config.get_text_config()).vocab_size or 0
    if not any(count > 1 and max(shape) >= num_tokens for shape, count in shapes.items()):
        return  # no two tensors can be a head and embeddings; only importing the model's file tells their names
    import torch
    import transformers

    names = [name for name in config.architectures or () if hasattr(transformers, name)]
    tied = module_facts(getattr(transformers, names[0]))._tied_weights_keys if names else None
    for target, source in tied.items() if isinstance(tied, dict) else ():
        if not {target, source} <= checkpoint.specs.keys():
            continue
        head, embeddings = checkpoint.join([target])[0], checkpoint.join([source])[0]
        if not torch.equal(head, embeddings):
            logger.warning(
                "%s has tie_word_embeddings=true, but %s and %s differ in its files; both are used.",
                *(folder, target, source),
            )
            config.tie_word_embeddings = False
