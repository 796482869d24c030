"""One plain safetensors file out of the checkpoint of a run.

This package saves weights whole, and such weights are copied. Upstream's own settings can divide them: with
`fsdp_config={"state_dict_type": "SHARDED_STATE_DICT"}` accelerate writes `pytorch_model_fsdp_0/`
(torch.distributed.checkpoint), and `save_pretrained(distributed_checkpoint=True)` writes `shard-*.safetensors`. The
real Optimum Neuron writes `shards/` (`parallel_shards.py`). No process group is needed.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ArtifactError
from ..weights import weight_files
from .parallel_shards import FOLDERS, find_parallel_shards, read_parallel_shards

if TYPE_CHECKING:
    import torch

FSDP_FOLDER = "pytorch_model_fsdp_0"
"""Folder where accelerate writes shards of weights (`accelerate.utils.save_fsdp_model`)."""
WEIGHTS, ADAPTER = "model.safetensors", "adapter_model.safetensors"
_WHOLE = (WEIGHTS, f"{WEIGHTS}.index.json", ADAPTER)
_CONFIGURATIONS = ("config.json", "adapter_config.json")
_COPIED = (*_CONFIGURATIONS, "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consolidated:
    """The result of `consolidate`."""

    path: str
    """File with the weights."""
    source: str
    """A folder of shards, or a file."""
    num_tensors: int
    size_bytes: int
    loadable: bool
    """Whether the folder has a configuration, so that `from_pretrained` reads it."""


def consolidate(
    checkpoint: str | Path, output: str | Path | None = None, *, config: str | Path | None = None
) -> Consolidated:
    """Write the weights of a checkpoint as one file: joined from shards, or copied if they are whole.

    Args:
        checkpoint: the folder of a checkpoint, or of a run, whose last checkpoint is taken. In place of a checkpoint,
            `<checkpoint>/adapter_<name>` is possible, where scripts of Optimum Neuron expect an adapter.
        output: where to write; default: the checkpoint itself.
        config: folder with the model's configuration, where the checkpoint has none.

    Raises:
        ArtifactError: the checkpoint has no weights.

    Example:
        ```python no-run
        from optimum_neuron.distributed.consolidate import consolidate

        consolidate("out/checkpoint-100", config="my_model")
        ```
    """
    folder, target = _folders(Path(checkpoint))
    target = target if output is None else Path(output)
    source = _require_weights(folder)
    weights = _read(source)
    path = target / (ADAPTER if source.name in (ADAPTER, FOLDERS[1]) else WEIGHTS)
    target.mkdir(parents=True, exist_ok=True)
    if source.resolve() != path.resolve():
        _write(weights, path)
    for name in _COPIED:
        for place in (folder, Path(config) if config is not None else folder):
            if (place / name).is_file() and not (target / name).exists():
                shutil.copy(place / name, target / name)
    return Consolidated(
        path=str(path),
        source=str(source),
        num_tensors=len(weights),
        size_bytes=sum(tensor.nbytes for tensor in weights.values()),
        loadable=any((target / name).is_file() for name in _CONFIGURATIONS),
    )


def read_joined(checkpoint: str | Path) -> dict[str, torch.Tensor]:
    """Return the weights that `consolidate` writes, by their names."""
    folder, _ = _folders(Path(checkpoint))
    return _read(_require_weights(folder))


def _folders(checkpoint: Path) -> tuple[Path, Path]:
    """The folder with the weights of a checkpoint or of a run, and the one to write to by default."""
    folder = _with_weights(checkpoint)
    last = _last_checkpoint(folder) if _weights_in(folder) is None else None
    return last or folder, last or checkpoint


def _with_weights(folder: Path) -> Path:
    """The folder itself, or the one above `adapter_<name>`, where adapters are saved here."""
    is_empty = not (folder / ADAPTER).is_file() and find_parallel_shards(folder) is None
    is_above = folder.name.startswith("adapter_") and is_empty and (folder.parent / ADAPTER).is_file()
    return folder.parent if is_above else folder


def _last_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint of a run; None: there is none."""
    from transformers.trainer_utils import get_last_checkpoint

    name = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    return None if name is None else Path(name)


def _require_weights(folder: Path) -> Path:
    """The file or folder of weights of a checkpoint."""
    if (source := _weights_in(folder)) is not None:
        return source
    folders, files = f"{FSDP_FOLDER}/, {FOLDERS[0]}/", f"shard-*.safetensors, {', '.join(_WHOLE)}"
    message = f"{folder} has no weights: none of {folders}, {files}."
    raise ArtifactError(message, hint="Pass the folder checkpoint-<step> of a run.", folder=str(folder))


def _weights_in(folder: Path) -> Path | None:
    if (shards := find_parallel_shards(folder)) is not None:
        return shards
    if (folder / FSDP_FOLDER / ".metadata").is_file():
        return folder / FSDP_FOLDER
    if any(folder.glob("shard-*-model-*.safetensors")):
        return folder
    for name in _WHOLE:
        if (folder / name).is_file():
            return folder / name
    return None


def _read(source: Path) -> dict[str, torch.Tensor]:
    if find_parallel_shards(source) == source:
        return read_parallel_shards(source)
    if source.is_dir():
        return _read_shards(source, is_fsdp=source.name == FSDP_FOLDER)
    from safetensors.torch import load_file

    paths = weight_files(source.parent) if source.suffix == ".json" else [source]
    return {key: tensor for path in paths for key, tensor in load_file(path).items()}


def _read_shards(folder: Path, *, is_fsdp: bool) -> dict[str, torch.Tensor]:
    """Every tensor of a folder of torch.distributed.checkpoint, under the model's names."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    reader = (dcp.FileSystemReader if is_fsdp else HuggingFaceStorageReader)(str(folder))
    entries = reader.read_metadata().state_dict_metadata
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if isinstance(entry, dcp.TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        # torch warns of loading in one process.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, storage_reader=reader, no_dist=True)
    # accelerate saves the state of a model under this name.
    return {name.removeprefix("model.") if is_fsdp else name: tensor for name, tensor in state.items()}


def _write(weights: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(weights, unfinished, metadata={"format": "pt"})
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
