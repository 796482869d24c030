"""Optimizer states in shards (torch.distributed.checkpoint), and whole weights for a model that is in parts.

Each process writes what it has into `optimizer/` of a checkpoint, under the names of the parameters, so another number
of cores, or one, reads it back; so are float32 master weights in `master_weights/`. Weights are always saved whole
beside them (`save_pretrained`).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ModelError, refusal

OPTIMIZER_FOLDER = "optimizer"
"""In a checkpoint; the format is torch.distributed.checkpoint's."""

MASTERS_FOLDER = "master_weights"
"""Beside it, in the same format, where parameters have 16 bits."""


def has_sharded_optimizer(folder: str | Path) -> bool:
    """Whether a checkpoint has optimizer states in shards."""
    return Path(folder, OPTIMIZER_FOLDER, ".metadata").is_file()


def save_optimizer(model: Any, optimizer: Any, folder: str | Path, masters: Mapping[str, torch.Tensor]) -> None:
    """Write optimizer states; every process calls it.

    Args:
        model: whose parameters the optimizer has.
        optimizer: of torch, or accelerate's wrapper of one.
        folder: the checkpoint.
        masters: float32 weights of 16-bit parameters, by name; the optimizer has them in their place.
    """
    import torch.distributed.checkpoint as dcp
    from transformers.distributed.checkpoint import _redistribute_state_dict, save_optimizer_distributed

    optimizer = getattr(optimizer, "optimizer", optimizer)
    with _as_torch_expects(model, optimizer, masters):
        save_optimizer_distributed(model, optimizer, str(Path(folder, OPTIMIZER_FOLDER)))
    if masters:
        own = {name: master.detach() for name, master in masters.items()}
        dcp.save(_redistribute_state_dict(own), checkpoint_id=str(Path(folder, MASTERS_FOLDER)))


def load_optimizer(model: Any, optimizer: Any, folder: str | Path, masters: Mapping[str, torch.Tensor]) -> None:
    """Read what `save_optimizer` wrote, on any number of cores; every process calls it.

    Master weights that a checkpoint has not (its run had none) are left as they are.
    """
    import torch.distributed.checkpoint as dcp
    from transformers.distributed.checkpoint import _redistribute_state_dict, load_optimizer_distributed

    optimizer = getattr(optimizer, "optimizer", optimizer)
    with warnings.catch_warnings(), _as_torch_expects(model, optimizer, masters):
        # One process is as good as several, which torch warns of.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_optimizer_distributed(model, optimizer, str(Path(folder, OPTIMIZER_FOLDER)))
        if masters and Path(folder, MASTERS_FOLDER, ".metadata").is_file():
            own = {name: master.detach() for name, master in masters.items()}
            state = _redistribute_state_dict(own)
            dcp.load(state, checkpoint_id=str(Path(folder, MASTERS_FOLDER)))
            for name, tensor in _redistribute_state_dict(state, reference_state_dict=own).items():
                own[name].copy_(tensor)


def load_scheduler(scheduler: Any, path: str | Path) -> None:
    """Read the state of a learning rate scheduler, on any number of cores.

    Its state has an entry for each group of parameters, and groups differ between layouts: upstream makes one for each
    mesh.

    Raises:
        ModelError: the groups that it was saved with had different learning rates, so who has which is not known.
    """
    state = torch.load(path, weights_only=True)
    num_groups = len(scheduler.optimizer.param_groups)
    for name in ("base_lrs", "_last_lr", "lr_lambdas"):
        values = state.get(name, [])
        if len(values) in (0, num_groups):
            continue
        if any(value != values[0] for value in values):
            raise ModelError(
                refusal(
                    asked=f"the state of the scheduler in {path}",
                    found=f"{len(values)} groups of parameters with different learning rates, where {num_groups} are",
                    why="another layout has other groups, and their rates are not known",
                    do="resume with the checkpoint's layout",
                )
            )
        state[name] = [values[0]] * num_groups
    scheduler.load_state_dict(state)


@contextlib.contextmanager
def _as_torch_expects(
    model: Any, optimizer: torch.optim.Optimizer, masters: Mapping[str, torch.Tensor]
) -> Iterator[None]:
    """Let states be found under names: a model has its master weights as parameters, every group has some.

    torch names states after the parameters of the model that the optimizer has too, and groups after their first one.
    """
    places = []
    for name, master in masters.items():
        path, _, last = name.rpartition(".")
        place = model.get_submodule(path)._parameters
        places.append((place, last, place[last]))
        place[last] = master
    groups = optimizer.param_groups
    optimizer.param_groups = [group for group in groups if group["params"]]
    try:
        yield
    finally:
        for place, last, parameter in places:
            place[last] = parameter
        # Loading makes new groups.
        loaded = iter(optimizer.param_groups)
        optimizer.param_groups = [next(loaded) if group["params"] else group for group in groups]


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
        state = empty.state_dict()
        if not hasattr(empty, "peft_config"):
            return cls(empty=empty, tensors=state, names={name: name for name in state})
        from peft import get_peft_model_state_dict

        own = {id(tensor): name for name, tensor in state.items()}
        saved = get_peft_model_state_dict(empty, state_dict=dict(state))
        return cls(empty=empty, tensors=saved, names={name: own[id(tensor)] for name, tensor in saved.items()})

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
    _require_weights_of(whole, found, folder, type(model).__name__)
    own = set(model.state_dict())
    weights = {whole.names[name]: tensor for name, tensor in found.items() if whole.names[name] in own}
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True, strict=False))


def _require_weights_of(whole: WholeModel, weights: Mapping[str, torch.Tensor], folder: str | Path, model: str) -> None:
    found, wanted = {name: tuple(tensor.shape) for name, tensor in weights.items()}, whole.tensors
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
    """The tensors of a folder's safetensors files, on the host: of a model, or of an adapter."""
    from safetensors.torch import load_file

    return {
        name: tensor
        for path in sorted([*Path(folder).glob("model*.safetensors"), *Path(folder).glob("adapter_model.safetensors")])
        for name, tensor in load_file(path).items()
    }
