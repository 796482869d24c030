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

from ..errors import ConfigError, invalid_choice
from ..xla import serialization
from .agreement import ending_together, require_everywhere
from .attributes import is_divided, is_of_expert, part_of
from .moving import cast_all, to_cpu
from .parallel_state import EXPERT, PIPELINE, TENSOR, ZERO1
from .sharding import prepared

PathLike = str | os.PathLike[str]


def ranks_of_axes() -> tuple[int, int, int]:
    """This rank in tensor and pipeline parallelism, and among those of data and context parallelism."""
    tp, pp, dp = (axis.rank() if axis.is_made() else 0 for axis in (TENSOR, PIPELINE, ZERO1))
    return tp, pp, dp


def _name(master_dp_only: bool) -> str:
    tp, pp, dp = ranks_of_axes()
    name = f"tp_rank_{tp:02d}_pp_rank_{pp:02d}"
    return name if master_dp_only else f"{name}_dp_rank_{dp:02d}"


def write_item(data: Any, file: Path, *, by_tensor: bool = False) -> None:
    """Write data to a file that is never there in part; its folder is made.

    Args:
        data: nested data.
        file: the file.
        by_tensor: write each tensor to its own file, and shapes to `<file>.info.pt`, which NxD needs to load them.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    if not by_tensor:
        serialization.write_file(to_cpu(data), file)
        return
    facts = [
        {"dtype": one.dtype, "shape": one.shape, "expert_model_parallel": is_of_expert(one)}
        for one in serialization.save_tensors(data, str(file), master_only=False)
    ]
    serialization.write_file(dict(enumerate(facts)), file.with_name(f"{file.name}.info.pt"))


def local_path(path: PathLike) -> Path:
    """The path of a folder, which must not be the address of an object store."""
    if "://" in os.fspath(path):
        message = f"{path} is not a folder of this machine."
        raise ConfigError(message, hint="Save to a folder, and copy it.", path=str(path))
    return Path(path)


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
    if EXPERT.is_made() and EXPERT.size() > 1 and master_dp_only:
        message = "Ranks with other experts would write the same file."
        raise ConfigError(message, hint="Call save_checkpoint, or pass master_dp_only=False.", ranks=EXPERT.size())
    writes = ranks_of_axes()[2] == 0 or not master_dp_only
    path = local_path(output_dir) / _name(master_dp_only)
    data = cast_all(dict(checkpoint)) if down_cast_bf16 else dict(checkpoint)
    turns = dist.get_world_size() if save_serially and not save_xser and dist.is_initialized() else 1
    for turn in range(turns):
        with ending_together("Free space, or choose another folder, and save again."):
            if writes and (turns == 1 or turn == dist.get_rank()):
                write_item(data, path if save_xser else path / "checkpoint.pt", by_tensor=save_xser)


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
        ConfigError: a rank's file is missing, or another rank could not read its own.
    """
    target = model if model_or_optimizer is None else model_or_optimizer
    path = local_path(chkpt_path) / _name(master_dp_only) if sharded else local_path(chkpt_path)
    path = path / "checkpoint.pt" if sharded and not load_xser else path
    require_file(path)
    if not sharded and target is None:
        raise ConfigError("A whole checkpoint is divided for a model.", hint="Pass model_or_optimizer.")
    with ending_together("Load a checkpoint of this model."):
        read = serialization.load_tensors(path) if load_xser else serialization.read_file(path)
        if target is None:
            return read
        if model_key is not None and model_key not in read:
            raise invalid_choice("model_key", model_key, read)
        states = read if model_key is None else read.pop(model_key)
        if not sharded:
            states = get_sharded_model_dict(target, states)
        give(target, states, strict=strict)
    return None if model_key is None else read


def give(target: Any, states: Any, *, strict: bool = True) -> None:
    """Load states into a model or an optimizer, or put them into a dict.

    Args:
        target: gets the states.
        states: what it has saved.
        strict: a model has the same names.
    """
    if isinstance(target, nn.Module):
        target.load_state_dict(states, strict=strict)
    elif isinstance(target, dict):
        target.update(states)
    else:
        target.load_state_dict(states)


def require_file(path: Path) -> None:
    """Require that every rank has its file; a rank without it ends all of them."""
    tp, pp, dp = ranks_of_axes()
    problem = None if path.exists() else f"{path} is missing (tensor rank {tp}, pipeline rank {pp}, data rank {dp})."
    hint = "Load with the degrees that the checkpoint was saved with, or copy the missing file."
    require_everywhere(problem, hint, path=str(path))


def get_sharded_model_dict(model: nn.Module, model_state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return this rank's part of the states of a whole model.

    Args:
        model: the model of this rank, whose parameters say how ranks divide them.
        model_state_dict: states of the whole model.
    """
    states = prepared(model_state_dict, model)
    rank = TENSOR.rank() if TENSOR.is_made() else 0
    for key, parameter in model.state_dict(keep_vars=True).items():
        if key in states and is_divided(parameter):
            states[key] = part_of(states[key], parameter, rank, f"of {key}")
    return states
