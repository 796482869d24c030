"""Whole weights of a model that is in parts: gathered for a checkpoint, and taken apart again."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Container, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from ..errors import ModelError

if TYPE_CHECKING:
    from torch import nn

_SHOWN = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeModel:
    """Names and shapes of a model before its parameters were split."""

    empty: Any
    """A copy with parameters on meta: it knows which tensors a checkpoint has, and how they are saved."""
    tensors: Mapping[str, torch.Tensor]
    """Tensors of a checkpoint, by name: of an adapter, only its own."""
    names: Mapping[str, str]
    """From names in checkpoints to names in the model's state."""

    @classmethod
    def of(cls, model: nn.Module) -> WholeModel:
        """Record a model, with or without an adapter of PEFT; no memory is allocated."""
        memo: dict[int, Any] = {id(buffer): torch.empty_like(buffer, device="meta") for buffer in model.buffers()}
        for parameter in model.parameters():
            like = torch.empty_like(parameter, device="meta")
            memo[id(parameter)] = torch.nn.Parameter(like, requires_grad=parameter.requires_grad)
        empty = copy.deepcopy(model, memo)
        state = empty.state_dict(keep_vars=True)
        if not hasattr(empty, "peft_config"):
            return cls(empty=empty, tensors=state, names={name: name for name in state})
        from peft import get_peft_model_state_dict

        names = {id(tensor): name for name, tensor in state.items()}
        saved = get_peft_model_state_dict(empty, state_dict=dict(state))
        return cls(empty=empty, tensors=saved, names={name: names[id(tensor)] for name, tensor in saved.items()})

    def differences(self, weights: Mapping[str, torch.Tensor]) -> str:
        """Describe how weights differ from this model's; empty if they fit. Tied ones may be missing."""
        present = {id(self.tensors[name]) for name in weights if name in self.tensors}
        tied = {name for name, tensor in self.tensors.items() if id(tensor) in present}
        return describe_differences(shapes_of(self.tensors), shapes_of(weights), optional=tied)

    def gather(self, model: nn.Module, group: dist.ProcessGroup | None = None) -> dict[str, torch.Tensor]:
        """Return the whole weights, on the host, in their own dtypes; every process calls it.

        Returns:
            Tensors by the names of the model's state.
        """
        state = model.state_dict(keep_vars=True)
        owners: list[Any] = [set(state)]
        if group is not None:
            owners = [None] * group.size()
            dist.all_gather_object(owners, set(state), group=group)
        weights: dict[str, torch.Tensor] = {}
        tied: dict[int, torch.Tensor] = {}
        for name, like in self.tensors.items():
            if id(like) not in tied:
                (owner, *_) = [rank for rank, theirs in enumerate(owners) if self.names[name] in theirs]
                tied[id(like)] = _gathered(state.get(self.names[name]), like, owner, group)
            weights[self.names[name]] = tied[id(like)]
        return weights


def _gathered(
    tensor: torch.Tensor | None, like: torch.Tensor, owner: int, group: dist.ProcessGroup | None
) -> torch.Tensor:
    from torch.distributed.tensor import DTensor

    tensor = tensor.detach() if tensor is not None else None
    tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    whole = torch.empty(like.shape, dtype=like.dtype) if tensor is None else tensor.to("cpu", like.dtype).contiguous()
    if group is not None:
        dist.broadcast(whole, src=dist.get_global_rank(group, owner), group=group)
    return whole


def load_weights(model: nn.Module, whole: WholeModel, folder: str | Path) -> None:
    """Load a folder's weights into a model of DTensors, or a stage; every process calls it."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    saved: Mapping[str, torch.Tensor] = read_weights(folder)
    if whole.differences(saved):
        saved = read_converted(whole.empty, folder, dtype="auto") or saved
    differences = whole.differences(saved)
    if differences:
        raise other_model(folder, whole.empty, differences)
    local = set(model.state_dict())
    tied = {id(whole.tensors[name]): tensor for name, tensor in saved.items()}
    weights = {
        whole.names[name]: tied[id(like)]
        for name, like in whole.tensors.items()
        if id(like) in tied and whole.names[name] in local
    }
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def read_converted(model: nn.Module, folder: str | Path, *, dtype: torch.dtype) -> dict[str, torch.Tensor] | None:
    """Read weights under a model's names that only `from_pretrained` knows (experts in one tensor, for example).

    None for an adapter, and where even these do not fit.
    """
    if hasattr(model, "peft_config"):
        return None
    loaded, report = type(model).from_pretrained(
        folder, config=model.config, dtype=dtype, ignore_mismatched_sizes=True, output_loading_info=True
    )
    problems = (report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
    return None if any(problems) else loaded.state_dict()


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors by their names."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def describe_differences(
    expected: Mapping[str, tuple[int, ...]], saved: Mapping[str, tuple[int, ...]], *, optional: Container[str]
) -> str:
    """Describe how shapes in a checkpoint differ from a model's by name; empty if they fit."""
    problems = {
        "missing": [name for name in expected if name not in saved and name not in optional],
        "not in the model": [name for name in saved if name not in expected],
        "of another shape": [
            f"{name} {saved[name]}, not {shape}"
            for name, shape in expected.items()
            if name in saved and saved[name] != shape
        ],
    }
    return "; ".join(
        f"{len(names)} {kind}: {', '.join([*names[:_SHOWN], *(['...'] if len(names) > _SHOWN else [])])}"
        for kind, names in problems.items()
        if names
    )


def other_model(folder: str | Path, model: nn.Module, differences: str) -> ModelError:
    """Return the error for a checkpoint of another model."""
    message = f"The weights of {folder} do not fit the {type(model).__name__}: {differences}."
    hint = "Pass the model of the checkpoint, or a new output_dir."
    return ModelError(message, hint=hint, folder=str(folder), differences=differences)


def read_weights(folder: str | Path) -> Mapping[str, torch.Tensor]:
    """Read the tensors of a model's or adapter's safetensors files, on the host."""
    from safetensors.torch import load_file

    return {
        name: tensor
        for path in sorted([*Path(folder).glob("model*.safetensors"), *Path(folder).glob("adapter_model.safetensors")])
        for name, tensor in load_file(path).items()
    }
