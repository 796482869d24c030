"""Optimizer states in shards (torch.distributed.checkpoint), and whole weights for a model that is in parts.

Each process writes what it has into `optimizer/` of a checkpoint, under the names of the parameters, so another number
of cores, or one, reads it back. Weights are always saved whole beside it (`save_pretrained`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ModelError, refusal

if TYPE_CHECKING:
    import torch

OPTIMIZER_FOLDER = "optimizer"
"""In a checkpoint; the format is torch.distributed.checkpoint's."""


def has_sharded_optimizer(folder: str | Path) -> bool:
    """Whether a checkpoint has optimizer states in shards."""
    return Path(folder, OPTIMIZER_FOLDER, ".metadata").is_file()


def save_optimizer(model: Any, optimizer: Any, folder: str | Path) -> None:
    """Write optimizer states; every process calls it.

    Args:
        model: whose parameters the optimizer has.
        optimizer: of torch, or accelerate's wrapper of one.
        folder: the checkpoint.
    """
    from transformers.distributed.checkpoint import save_optimizer_distributed

    save_optimizer_distributed(model, _plain(optimizer), str(Path(folder, OPTIMIZER_FOLDER)))


def load_optimizer(model: Any, optimizer: Any, folder: str | Path) -> None:
    """Read what `save_optimizer` wrote, on any number of cores; every process calls it."""
    from transformers.distributed.checkpoint import load_optimizer_distributed

    with warnings.catch_warnings():
        # One process is as good as several, which torch warns of.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_optimizer_distributed(model, _plain(optimizer), str(Path(folder, OPTIMIZER_FOLDER)))


def load_weights(model: Any, folder: str | Path) -> None:
    """Give a model of DTensors, or a stage, its part of the weights in a folder; every process calls it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    own = set(model.state_dict())
    weights = {name: tensor for name, tensor in read_weights(folder).items() if name in own}
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def require_weights_of(wanted: Mapping[str, torch.Tensor], folder: str | Path, model: str) -> None:
    """Refuse a folder with the weights of another model.

    Args:
        wanted: names and shapes of the whole model; tied ones may be missing in the folder.
        folder: the checkpoint.
        model: class of the model.

    Raises:
        ModelError: names or shapes differ.
    """
    found = {name: tuple(tensor.shape) for name, tensor in read_weights(folder).items()}
    unknown = [name for name in found if name not in wanted]
    other = [name for name in found if name in wanted and found[name] != tuple(wanted[name].shape)]
    if found and not unknown and not other:
        return
    raise ModelError(
        refusal(
            asked=f"weights of {folder}",
            found=f"those of another model: {len(unknown)} unknown names, {len(other)} of another shape, first "
            f"{(unknown + other + ['no weights at all'])[0]}",
            why=f"a {model} of this configuration is trained",
            do="pass the model that the checkpoint was made of, or a fresh output_dir",
        )
    )


def read_weights(folder: str | Path) -> Mapping[str, torch.Tensor]:
    """The tensors of a folder's safetensors files, on the host."""
    from safetensors.torch import load_file

    return {
        name: tensor
        for path in sorted(Path(folder).glob("model*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def _plain(optimizer: Any) -> torch.optim.Optimizer:
    return getattr(optimizer, "optimizer", optimizer)
