"""Optimizer states and master weights in shards (torch.distributed.checkpoint).

Each process writes its part into `optimizer/` and `master_weights/` of a checkpoint, under the names of the parameters,
so another number of cores, or one, reads it back. Full weights are saved next to them (`whole.py`).
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import ModelError
from .pipeline import Absent

OPTIMIZER_FOLDER = "optimizer"
"""In a checkpoint; the format is torch.distributed.checkpoint's."""

MASTERS_FOLDER = "master_weights"
"""Beside it, in the same format, where parameters have 16 bits."""


def has_sharded_optimizer(folder: str | Path) -> bool:
    """Return whether a checkpoint has optimizer states in shards."""
    return Path(folder, OPTIMIZER_FOLDER, ".metadata").is_file()


def plain_optimizer(optimizer: Any) -> Any:
    """Return the optimizer inside a wrapper of accelerate or NxD, or the optimizer itself."""
    return getattr(optimizer, "optimizer", optimizer)


def save_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: str | Path, masters: Mapping[str, torch.Tensor]
) -> None:
    """Write optimizer states; every process calls it.

    Args:
        optimizer: of torch, or accelerate's wrapper of one.
        masters: float32 weights of 16-bit parameters, by name; the optimizer has them in their place.
    """
    import torch.distributed.checkpoint as dcp
    from transformers.distributed.checkpoint import save_optimizer_distributed

    from ..upstream.transformers import redistribute_state_dict

    optimizer = plain_optimizer(optimizer)
    with _as_torch_expects(model, optimizer, masters), _without_twins(model, optimizer):
        save_optimizer_distributed(model, optimizer, str(Path(folder, OPTIMIZER_FOLDER)))
    if masters:
        twins = _first_names(model)
        state = {name: master.detach() for name, master in masters.items() if name not in twins}
        dcp.save(redistribute_state_dict(state), checkpoint_id=str(Path(folder, MASTERS_FOLDER)))


def load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, folder: str | Path, masters: Mapping[str, torch.Tensor]
) -> None:
    """Read the files of `save_optimizer`, on any number of cores; every process calls it.

    Master weights are unchanged if the checkpoint has none.
    """
    import torch.distributed.checkpoint as dcp
    from transformers.distributed.checkpoint import load_optimizer_distributed

    from ..upstream.transformers import redistribute_state_dict

    optimizer = plain_optimizer(optimizer)
    with warnings.catch_warnings(), _as_torch_expects(model, optimizer, masters), _under_first_names(model):
        # torch warns of loading in one process.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_optimizer_distributed(model, optimizer, str(Path(folder, OPTIMIZER_FOLDER)))
        if masters and Path(folder, MASTERS_FOLDER, ".metadata").is_file():
            first = _first_names(model)
            local = {first.get(name, name): master.detach() for name, master in masters.items()}
            state = redistribute_state_dict(local)
            dcp.load(state, checkpoint_id=str(Path(folder, MASTERS_FOLDER)))
            for name, tensor in redistribute_state_dict(state, reference_state_dict=local).items():
                local[name].copy_(tensor)


def load_scheduler(scheduler: Any, path: str | Path) -> None:
    """Read the state of a learning rate scheduler, on any number of cores.

    Its state has an entry for each group of parameters, and groups differ between layouts: upstream makes one for each
    mesh.
    """
    state = torch.load(path, weights_only=True)
    num_groups = len(scheduler.optimizer.param_groups)
    for name in ("base_lrs", "_last_lr", "lr_lambdas"):
        values = state.get(name, [])
        if len(values) in (0, num_groups):
            continue
        if any(value != values[0] for value in values):
            message = f"{path} has {len(values)} groups of different learning rates, but this layout has {num_groups}."
            raise ModelError(message, hint="Resume with the checkpoint's layout.", path=str(path))
        state[name] = [values[0]] * num_groups
    scheduler.load_state_dict(state)


@contextlib.contextmanager
def _as_torch_expects(
    model: nn.Module, optimizer: torch.optim.Optimizer, masters: Mapping[str, torch.Tensor]
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


def _twins(model: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Return absent modules of a stage with those of it that have their weights: the first stage has them too."""
    absent = [module for module in model.modules() if isinstance(module, Absent)]
    return [(module, twin) for module in absent for twin in module.twin]


def _first_names(model: nn.Module) -> dict[str, str]:
    """Map the names of this stage's copies to the names of the same weights in the first stage."""
    paths = {id(module): path for path, module in model.named_modules()}
    return {f"{paths[id(twin)]}.weight": f"{paths[id(absent)]}.weight" for absent, twin in _twins(model)}


@contextlib.contextmanager
def _under_first_names(model: nn.Module) -> Iterator[None]:
    """Let copies of weights of the first stage be found under the names that they have there."""
    moved = [(absent._parameters, twin._parameters) for absent, twin in _twins(model)]
    for place, twin in moved:
        place["weight"] = twin.pop("weight")
    try:
        yield
    finally:
        for place, twin in moved:
            twin["weight"] = place.pop("weight")


@contextlib.contextmanager
def _without_twins(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Let copies of weights of the first stage be left out, which saves them."""
    places = [twin._parameters for _, twin in _twins(model)]
    copies = [place.pop("weight") for place in places]
    left_out = {id(copy) for copy in copies}
    states = [optimizer.state.pop(copy, None) for copy in copies]
    groups = optimizer.param_groups
    rest = [{**group, "params": [one for one in group["params"] if id(one) not in left_out]} for group in groups]
    optimizer.param_groups = [group for group in rest if group["params"]]
    try:
        yield
    finally:
        optimizer.param_groups = groups
        for place, copy, state in zip(places, copies, states, strict=True):
            place["weight"] = copy
            if state is not None:
                optimizer.state[copy] = state
