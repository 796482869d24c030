"""Whole checkpoints divided among the ranks of a model, and weights that differ by rank alone.

shards = shard_checkpoint(model_of_one_rank.state_dict(), model)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from ..base.foreign import module_facts
from ..errors import AssertedConfigError, WeightsError
from .attributes import part_of, set_tensor_model_parallel_attributes
from .parallel_state import TENSOR, model_parallel_is_initialized


class SPMDRank(nn.Module):
    """The number of a rank as a weight, so that all ranks run one program.

    Args:
        world_size: number of ranks.
        tensor_model_parallel_size: number of ranks that have a value each; None: all.
    """

    def __init__(self, world_size: int, tensor_model_parallel_size: int | None = None) -> None:
        super().__init__()
        size = tensor_model_parallel_size or world_size
        rank = TENSOR.rank() if model_parallel_is_initialized() else 0
        self.rank = nn.Parameter(torch.tensor([rank % size], dtype=torch.int32), requires_grad=False)
        self.world_size = world_size
        set_tensor_model_parallel_attributes(self.rank, True, 0, 1, size)

    def forward(self) -> torch.Tensor:
        """Return the number, as a tensor of one element."""
        return self.rank

    def get_rank(self) -> torch.Tensor:
        """Return the number, as a tensor of one element."""
        return self.rank

    def preshard_hook(self, model_state_dict: MutableMapping[str, torch.Tensor], prefix: str) -> None:
        """Add the numbers of all ranks to a whole checkpoint.

        Args:
            model_state_dict: the tensors, by name.
            prefix: name of this module's weight.
        """
        name = f"{prefix.rpartition('.')[0]}.rank".removeprefix(".")
        model_state_dict[name] = torch.arange(0, self.rank.num_partitions, dtype=torch.int32)


@contextlib.contextmanager
def init_on_device(
    device: torch.device, include_buffers: bool = False, force_custom_init_on_device: bool = False
) -> Iterator[None]:
    """Make parameters on a device inside a `with` block, such as "meta".

    Args:
        device: the device.
        include_buffers: make everything else there too; torch's factories do in either case.
        force_custom_init_on_device: not used; parameters of all modules are made there.
    """
    with torch.device(device):
        yield


def shard_checkpoint(
    checkpoint: MutableMapping[str, torch.Tensor],
    model: nn.Module,
    start_rank: int | None = None,
    end_rank: int | None = None,
    load_on_device: bool = False,
    serialize_path: str | os.PathLike[str] | None = None,
) -> list[dict[str, torch.Tensor]]:
    """Return the part of each rank of a whole checkpoint.

    Args:
        checkpoint: tensors by name.
        model: the model of one rank, which says how tensors are divided.
        start_rank: the first rank; None: 0.
        end_rank: the last rank; None: that of tensor parallelism.
        load_on_device: put the part of rank n on device "neuron:n".
        serialize_path: folder for `tp<n>_sharded_checkpoint.safetensors`.

    Raises:
        ConfigError: there are no groups, or no such ranks.
        WeightsError: tensors do not fit.
    """
    if not model_parallel_is_initialized():
        hint = "Call it inside NxDParallelState, or after initialize_model_parallel()."
        raise AssertedConfigError("There are no groups of tensor parallelism.", hint=hint)
    size = TENSOR.size()
    first, last = start_rank or 0, size - 1 if end_rank is None else end_rank
    if not 0 <= first <= last < size:
        message = f"Ranks {first} to {last} are asked for, and there are {size}."
        raise AssertedConfigError(message, hint=f"Name ranks from 0 to {size - 1}.", start_rank=first, end_rank=last)
    whole = prepared(checkpoint, model)
    shards = [parts_of(whole, model, rank) for rank in range(first, last + 1)]
    for rank, own in enumerate(shards, first):
        if serialize_path is not None:
            folder = Path(serialize_path)
            folder.mkdir(parents=True, exist_ok=True)
            save_file({name: one.contiguous() for name, one in own.items()}, shard_file(folder, rank))
        if load_on_device:
            own.update({name: one.to(f"neuron:{rank}") for name, one in own.items()})
    return shards


def shard_file(folder: Path, rank: int) -> Path:
    """The file with the weights of a rank."""
    return folder / f"tp{rank}_sharded_checkpoint.safetensors"


def invoke_preshard_hook(
    model: nn.Module | None, model_state_dict: MutableMapping[str, torch.Tensor], prefix: str = ""
) -> None:
    """Let modules change a whole checkpoint before it is divided, in place: pad it, or repeat heads.

    A module with a hook answers for the modules in it. It is called with the name of its weight, and with that of its
    bias if it is a layer with one.

    Args:
        model: the model; None: nothing is changed.
        model_state_dict: the tensors, by name.
        prefix: what names of the model begin with.
    """
    hook = module_facts(model).preshard_hook
    if model is None or hook is None:
        for name, child in () if model is None else model.named_children():
            invoke_preshard_hook(child, model_state_dict, f"{prefix}{name}.")
        return
    held = {name for name, _ in model.named_parameters(recurse=False)}
    for name in ("weight", "bias"):
        if f"{prefix}{name}" in model_state_dict if name in held else name == "weight":
            hook(model_state_dict, f"{prefix}{name}")


def prepared(checkpoint: Mapping[str, torch.Tensor], model: nn.Module) -> dict[str, torch.Tensor]:
    """A whole checkpoint after the hooks of the model's modules."""
    whole = dict(checkpoint)
    invoke_preshard_hook(model, whole)
    return whole


def parts_of(whole: Mapping[str, torch.Tensor], model: nn.Module, rank: int) -> dict[str, torch.Tensor]:
    """The part of a rank; tensors that only one of checkpoint and model has are left out."""
    own, wrong = {}, {}
    for name, parameter in model.state_dict(keep_vars=True).items():
        if name not in whole:
            continue
        part = part_of(whole[name], parameter, rank, name)
        if part.shape != parameter.shape:
            wrong[name] = f"{list(part.shape)} and not {list(parameter.shape)}"
            continue
        own[name] = part.to(parameter.dtype)
    if wrong:
        problems = "; ".join(f"the part of {name} is {text}" for name, text in wrong.items())
        message = f"The checkpoint does not fit the model: {problems}."
        raise WeightsError(message, hint="Pass a whole checkpoint of this model.", wrong=wrong)
    return own
