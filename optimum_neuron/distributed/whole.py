"""Whole weights of a model that is in parts: gathered for a checkpoint, and taken apart again."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ModelError, refusal

_WRONG = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
"""Parts of the report of `from_pretrained`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeModel:
    """What a model was before its parameters were split."""

    empty: Any
    """A copy with parameters on meta: it knows what is written to a checkpoint, and how."""
    tensors: Mapping[str, torch.Tensor]
    """What a checkpoint has, by its names: of an adapter, only that."""
    names: Mapping[str, str]
    """From names of checkpoints to those of the model's state."""

    @classmethod
    def of(cls, model: Any) -> WholeModel:
        """Look at a model, with or without an adapter of PEFT; no memory is taken."""
        memo: dict[int, Any] = {id(buffer): torch.empty_like(buffer, device="meta") for buffer in model.buffers()}
        for parameter in model.parameters():
            like = torch.empty_like(parameter, device="meta")
            memo[id(parameter)] = torch.nn.Parameter(like, requires_grad=parameter.requires_grad)
        empty = copy.deepcopy(model, memo)
        state = empty.state_dict(keep_vars=True)
        if not hasattr(empty, "peft_config"):
            return cls(empty=empty, tensors=state, names={name: name for name in state})
        from peft import get_peft_model_state_dict

        own = {id(tensor): name for name, tensor in state.items()}
        saved = get_peft_model_state_dict(empty, state_dict=dict(state))
        return cls(empty=empty, tensors=saved, names={name: own[id(tensor)] for name, tensor in saved.items()})

    def differences(self, weights: Mapping[str, torch.Tensor]) -> str:
        """What is wrong with weights for this model; empty where nothing is. Tied ones may be missing."""
        unknown = [name for name in weights if name not in self.tensors]
        known = [name for name in weights if name in self.tensors]
        other = [name for name in known if weights[name].shape != self.tensors[name].shape]
        kept = {id(self.tensors[name]) for name in known}
        missing = [name for name, tensor in self.tensors.items() if id(tensor) not in kept]
        told = {"unknown names": unknown, "of another shape": other, "missing": missing}
        return "; ".join(f"{len(names)} {what}, first {names[0]}" for what, names in told.items() if names)

    def gather(self, model: Any, group: dist.ProcessGroup | None = None) -> dict[str, torch.Tensor]:
        """The weights that a checkpoint has, whole, on the host, in their own dtypes; every process calls it.

        Args:
            model: in parts, under the names that it had.
            group: the stages of a pipeline, where there is one.

        Returns:
            Tensors by the names of the model's state.
        """
        state = model.state_dict(keep_vars=True)
        owners: list[Any] = [set(state)]
        if group is not None:
            owners = [None] * group.size()
            dist.all_gather_object(owners, set(state), group=group)
        found: dict[str, torch.Tensor] = {}
        tied: dict[int, torch.Tensor] = {}
        for name, like in self.tensors.items():
            tensor = state.get(self.names[name])
            whole = None if tensor is None else tied.get(id(tensor))
            if whole is None:
                (owner, *_) = [rank for rank, theirs in enumerate(owners) if self.names[name] in theirs]
                whole = _gathered(tensor, like, owner, group)
            tied[id(tensor)] = found[self.names[name]] = whole
        return found


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


def load_weights(model: Any, whole: WholeModel, folder: str | Path) -> None:
    """Give a model of DTensors, or a stage, its part of the weights in a folder; every process calls it.

    Raises:
        ModelError: they are another model's.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    found = read_weights(folder)
    if whole.differences(found) and not hasattr(whole.empty, "peft_config"):
        # Some architectures (experts in one tensor, for example) save under names that only `from_pretrained` knows.
        loaded, report = type(whole.empty).from_pretrained(
            folder, config=whole.empty.config, dtype="auto", ignore_mismatched_sizes=True, output_loading_info=True
        )
        found = found if any(report[kind] for kind in _WRONG) else loaded.state_dict()
    differences = whole.differences(found)
    if differences:
        raise ModelError(
            refusal(
                asked=f"weights of {folder}",
                found=f"those of another model: {differences}",
                why=f"a {type(whole.empty).__name__} of this configuration is trained",
                do="pass the model that the checkpoint was made of, or a fresh output_dir",
            )
        )
    own = set(model.state_dict())
    weights = {whole.names[name]: tensor for name, tensor in found.items() if whole.names[name] in own}
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def read_weights(folder: str | Path) -> Mapping[str, torch.Tensor]:
    """The tensors of a folder's safetensors files, on the host: of a model, or of an adapter."""
    from safetensors.torch import load_file

    return {
        name: tensor
        for path in sorted([*Path(folder).glob("model*.safetensors"), *Path(folder).glob("adapter_model.safetensors")])
        for name, tensor in load_file(path).items()
    }
