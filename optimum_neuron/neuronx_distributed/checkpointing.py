"""Files with one part of a model for each rank, `tp_rank_00_pp_rank_00/checkpoint.pt`, in the vendor's layout.

save({"model": model.state_dict()}, "checkpoint")
load("checkpoint", model_or_optimizer=model)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ..errors import ConfigError
from ..xla import serialization
from .agreement import require_everywhere
from .attributes import is_divided, part_of
from .moving import cast_all, to_cpu
from .parallel_state import DATA, PIPELINE, TENSOR

PathLike = str | os.PathLike[str]


def ranks_of_axes() -> tuple[int, int, int]:
    """This rank in tensor, pipeline, and data parallelism."""
    tp, pp, dp = (axis.rank() if axis.is_made() else 0 for axis in (TENSOR, PIPELINE, DATA))
    return tp, pp, dp


def _name(master_dp_only: bool) -> str:
    tp, pp, dp = ranks_of_axes()
    name = f"tp_rank_{tp:02d}_pp_rank_{pp:02d}"
    return name if master_dp_only else f"{name}_dp_rank_{dp:02d}"


def barrier() -> None:
    """Wait for all ranks."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def save(
    checkpoint: Mapping[str, Any],
    output_dir: PathLike,
    save_serially: bool = True,
    save_xser: bool = False,
    down_cast_bf16: bool = False,
    master_dp_only: bool = True,
) -> None:
    """Write this rank's part of a checkpoint; all ranks call it.

    Args:
        checkpoint: states by key, such as "model".
        output_dir: the folder.
        save_serially: write one rank after the other, so that the host holds one copy.
        save_xser: write one file for each tensor.
        down_cast_bf16: write floats of 32 bits as bfloat16.
        master_dp_only: ranks of data parallelism have the same states, so the first writes.
    """
    writes = ranks_of_axes()[2] == 0 or not master_dp_only
    path = Path(output_dir, _name(master_dp_only))
    data = cast_all(dict(checkpoint)) if down_cast_bf16 else dict(checkpoint)
    if save_xser:
        path.parent.mkdir(parents=True, exist_ok=True)
        if writes:
            serialization.save_tensors(data, str(path), master_only=False)
        barrier()
        return
    turns = dist.get_world_size() if save_serially and dist.is_initialized() else 1
    for turn in range(turns):
        if writes and (turns == 1 or turn == dist.get_rank()):
            path.mkdir(parents=True, exist_ok=True)
            torch.save(to_cpu(data), path / "checkpoint.pt")
        barrier()


def load(
    chkpt_path: PathLike,
    model: nn.Module | None = None,
    model_or_optimizer: Any = None,
    model_key: str | None = "model",
    load_xser: bool = False,
    sharded: bool = True,
    strict: bool = True,
    master_dp_only: bool = True,
) -> Any:
    """Read this rank's part of a checkpoint, or its part of a whole one; all ranks call it.

    Args:
        chkpt_path: the folder, or with `sharded=False` the file.
        model: the older name of `model_or_optimizer`.
        model_or_optimizer: gets the states; None: they are returned.
        model_key: key of these states; None: the checkpoint is the states.
        load_xser: tensors are files of their own.
        sharded: the folder has a part for each rank.
        strict: the model has the same names.
        master_dp_only: as of `save`.

    Returns:
        The rest of the checkpoint.

    Raises:
        ConfigError: a rank's file is missing.
    """
    target = model if model_or_optimizer is None else model_or_optimizer
    path = Path(chkpt_path, _name(master_dp_only)) if sharded else Path(chkpt_path)
    path = path / "checkpoint.pt" if sharded and not load_xser else path
    require_file(path)
    if not sharded and target is None:
        raise ConfigError("A whole checkpoint is divided for a model.", hint="Pass model_or_optimizer.")
    read = serialization.load_tensors(str(path)) if load_xser else read_file(path)
    if target is None:
        return read
    states = read if model_key is None else read.pop(model_key)
    if not sharded:
        states = get_sharded_model_dict(target, states)
    if isinstance(target, nn.Module):
        target.load_state_dict(states, strict=strict)
    else:
        target.load_state_dict(states)
    barrier()
    return None if model_key is None else read


def require_file(path: Path) -> None:
    """Require that every rank has its file; a rank without it ends all of them."""
    tp, pp, dp = ranks_of_axes()
    problem = None if path.exists() else f"{path} is missing (tensor rank {tp}, pipeline rank {pp}, data rank {dp})."
    hint = "Load with the degrees that the checkpoint was saved with, or copy the missing file."
    require_everywhere(problem, hint, path=str(path))


def read_file(path: Path) -> Any:
    """A file of tensors and plain values, on the CPU."""
    return torch.load(path, map_location="cpu", weights_only=True)


def get_sharded_model_dict(model: nn.Module, model_state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return this rank's part of the states of a whole model.

    Args:
        model: the model of this rank, whose parameters say how ranks divide them.
        model_state_dict: states of the whole model.
    """
    states = dict(model_state_dict)
    held = model.state_dict(keep_vars=True)
    for prefix, module in model.named_modules():
        for name in ("weight", "bias"):
            key = f"{prefix}.{name}".lstrip(".")
            if hasattr(module, "preshard_hook") and key in states and key in held:
                module.preshard_hook(states, key)
    rank = TENSOR.rank() if TENSOR.is_made() else 0
    for key, parameter in held.items():
        if key in states and is_divided(parameter):
            states[key] = part_of(states[key], parameter, rank, f"of {key}")
    return states
