"""One plain safetensors file out of weights that a run saved in shards.

This package saves weights whole. Upstream's own settings do not always: `fsdp_config={"state_dict_type":
"SHARDED_STATE_DICT"}` writes `pytorch_model_fsdp_0/` (torch.distributed.checkpoint), and
`save_pretrained(distributed_checkpoint=True)` writes `shard-*.safetensors`. No process group is needed.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArtifactError, refusal

if TYPE_CHECKING:
    import torch

FSDP_FOLDER = "pytorch_model_fsdp_0"
"""Where accelerate writes shards of weights (`accelerate.utils.save_fsdp_model`)."""
WEIGHTS = "model.safetensors"
_COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Consolidated:
    """What was written."""

    path: str
    """Of the file with the weights."""
    source: str
    """Where the shards were."""
    num_tensors: int
    """In the file."""
    size_bytes: int
    """Of the tensors."""
    loadable: bool
    """Whether a configuration is beside them, so that `from_pretrained` reads the folder."""


def consolidate(
    checkpoint: str | Path, output: str | Path | None = None, *, config: str | Path | None = None
) -> Consolidated:
    """Join the weights of a checkpoint that are in shards.

    Args:
        checkpoint: the folder of a checkpoint.
        output: where to write; default: the checkpoint itself.
        config: folder with the model's configuration, where the checkpoint has none.

    Raises:
        ArtifactError: no shards are there, or the weights are whole already.

    Example:
        ```python no-run
        from optimum_neuron.distributed.consolidate import consolidate

        consolidate("out/checkpoint-100", config="my_model")
        ```
    """
    folder, target = Path(checkpoint), Path(output if output is not None else checkpoint)
    source = _require_shards(folder)
    weights = _read_dcp(source) if source.name == FSDP_FOLDER else _read_shards(source)
    target.mkdir(parents=True, exist_ok=True)
    _write(weights, target / WEIGHTS)
    for name in _COPIED:
        for place in (folder, Path(config) if config is not None else folder):
            if (place / name).is_file() and not (target / name).exists():
                shutil.copy(place / name, target / name)
    return Consolidated(
        path=str(target / WEIGHTS),
        source=str(source),
        num_tensors=len(weights),
        size_bytes=sum(tensor.nbytes for tensor in weights.values()),
        loadable=(target / "config.json").is_file(),
    )


def _require_shards(folder: Path) -> Path:
    if (folder / FSDP_FOLDER / ".metadata").is_file():
        return folder / FSDP_FOLDER
    if any(folder.glob("shard-*-model-*.safetensors")):
        return folder
    whole = any((folder / name).is_file() for name in (WEIGHTS, f"{WEIGHTS}.index.json"))
    raise ArtifactError(
        refusal(
            asked=f"consolidate {folder}",
            found="weights that are whole already" if whole else f"neither {FSDP_FOLDER}/ nor shard-*.safetensors",
            why="only weights in shards are joined",
            do="load it with from_pretrained as it is" if whole else "name the folder checkpoint-<step> of a run",
        )
    )


def _read_dcp(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a folder of torch.distributed.checkpoint, under the model's names."""
    import torch
    import torch.distributed.checkpoint as dcp

    entries = dcp.FileSystemReader(str(folder)).read_metadata().state_dict_metadata
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if isinstance(entry, dcp.TensorStorageMetadata)
    }
    _load(state, dcp.FileSystemReader(str(folder)))
    return {name.removeprefix("model."): tensor for name, tensor in state.items()}


def _read_shards(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a folder that `save_pretrained(distributed_checkpoint=True)` wrote."""
    import torch
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    reader = HuggingFaceStorageReader(str(folder))
    entries = reader.read_metadata().state_dict_metadata
    state = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in entries.items()}
    _load(state, reader)
    return state


def _load(state: dict[str, torch.Tensor], reader: Any) -> None:
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        # One process is the intent, which torch warns of.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(state, storage_reader=reader, no_dist=True)


def _write(weights: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save_file

    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(weights, unfinished, metadata={"format": "pt"})
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
