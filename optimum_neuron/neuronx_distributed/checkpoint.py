"""Checkpoints of a training run, in the vendor's layout; both read the files of the other.

    checkpoints/step_10/checkpoint                                       begun
    checkpoints/step_10/model/dp_rank_00_tp_rank_01_pp_rank_00.pt        a rank's part of the model
    checkpoints/step_10/optim/dp_rank_00_tp_rank_01_pp_rank_00.pt        with ZeRO-1, one for each rank
    checkpoints/step_10/scheduler.pt, checkpoints/step_10/user_content.pt
    checkpoints/step_10/adapter_config.json                            options of LoRA
    checkpoints/step_10/done                                             complete

With `use_xser`, each tensor has a file in `<name>.pt.tensors`, and `<name>.pt.info.pt` has their shapes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, RuntimeConfigError
from ..xla import serialization
from .agreement import ending_together, require_agreement, require_everywhere
from .attributes import is_of_expert
from .checkpoint_writer import WRITER, completed_tags
from .checkpointing import PathLike, give, local_path, ranks_of_axes, require_file
from .lora import CONFIG, LoraModel
from .model import NxDModel
from .optimizer import NxDOptimizer
from .parallel_state import EXPERT, EXPERT_DATA, PIPELINE, TENSOR, ZERO1, is_global_rank_zero
from .zero import NeuronZero1Optimizer

_NAME = re.compile(r"dp_rank_(\d+)(?:_ep_rank_(\d+))?_tp_rank_(\d+)_pp_rank_(\d+)\.pt")


def save_checkpoint(
    checkpoint_dir_str: PathLike,
    tag: str | int,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    user_content: Any = None,
    num_workers: int = 8,
    use_xser: bool = False,
    num_kept_ckpts: int | None = None,
    async_save: bool = False,
    zero1_optimizer: bool = False,
    use_zero1_dcp: bool = False,
    avoid_saving_lower_precision_weights: bool = False,
) -> None:
    """Save what is passed, each rank its part; all ranks call it.

    Args:
        checkpoint_dir_str: folder of all checkpoints.
        tag: name of this one.
        model: the model, or its states.
        optimizer: the optimizer, or its states.
        scheduler: the scheduler.
        user_content: plain data, which rank 0 writes.
        num_workers: how many ranks of a machine write at once; all do.
        use_xser: write one file for each tensor.
        num_kept_ckpts: how many checkpoints to keep; the oldest are removed; None or -1: all.
        async_save: return before the files are written; the next save or `finalize_checkpoint` completes them.
        zero1_optimizer: `optimizer` is the states of a ZeRO-1 optimizer.
        use_zero1_dcp: not supported.
        avoid_saving_lower_precision_weights: not used; the weights are saved, also beside float32 ones.

    Raises:
        ConfigError: ranks save under other names, or one could not write.
    """
    _require_ranks(use_zero1_dcp)
    finalize_checkpoint()
    facts = {"tag": str(tag), "use_xser": use_xser, "num_kept_ckpts": num_kept_ckpts, "async_save": async_save}
    require_agreement("arguments of save_checkpoint", facts)
    if num_kept_ckpts is not None and num_kept_ckpts < 1 and num_kept_ckpts != -1:
        message = f"num_kept_ckpts is {num_kept_ckpts}."
        raise ConfigError(message, hint="Keep 1 or more, or pass None to keep all.", num_kept_ckpts=num_kept_ckpts)
    folder = local_path(checkpoint_dir_str) / str(tag)
    adapter = model.module if isinstance(model, NxDModel) else model
    with ending_together("Choose a folder that rank 0 may write to."):
        if is_global_rank_zero():
            _clear(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "checkpoint").write_text("1")
            if isinstance(adapter, LoraModel) and not adapter.lora_config.save_lora_config_adapter:
                for place in (folder, folder.parent):  # beside the adapter, and where NxD reads it
                    adapter.save_config(place)
    items: list[tuple[Any, Path, bool]] = []
    # Of the ranks with the same part: without experts, those of data and context parallelism.
    is_first = EXPERT_DATA.rank() == 0
    if model is not None and is_first:
        items.append((_states(model), folder / "model" / _name(), use_xser))
    if optimizer is not None:
        has_zero = _is_zero(optimizer) if not isinstance(optimizer, dict) else zero1_optimizer
        if has_zero or is_first:
            items.append((_states(optimizer), folder / "optim" / _name(by_data=has_zero), use_xser))
    if is_global_rank_zero():
        for name, data in (("scheduler", scheduler), ("user_content", user_content)):
            if data is not None:
                items.append((_states(data), folder / f"{name}.pt", False))
    WRITER.begin(folder, items, num_kept=num_kept_ckpts, waits=not async_save)


def _clear(folder: Path) -> None:
    """Remove an older checkpoint of the same name, its mark first: its files may be those of more ranks."""
    for name in ("done", "scheduler.pt", "user_content.pt", CONFIG):
        (folder / name).unlink(missing_ok=True)
    for name in ("model", "optim"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _states(value: Any) -> Any:
    states = value.state_dict() if hasattr(value, "state_dict") else value
    for one in _of_experts(value, states):
        if torch.is_tensor(one):
            one.expert_model_parallel = True
    return states


def _of_experts(value: Any, states: Any) -> list[Any]:
    """States of experts, whose files are marked: NxD loads the others from those of the first rank of experts."""
    if isinstance(value, nn.Module):
        return [states[name] for name, one in value.named_parameters() if is_of_expert(one) and name in states]
    if not isinstance(value, torch.optim.Optimizer) or _is_zero(value):
        return []
    parameters = [one for group in value.param_groups for one in group["params"]]
    numbers = [number for number, one in enumerate(parameters) if is_of_expert(one)]
    return [state for number in numbers for state in states["state"].get(number, {}).values()]


def _require_ranks(use_zero1_dcp: bool = False) -> None:
    if use_zero1_dcp:
        message = "Files of torch.distributed.checkpoint are neither written nor read here."
        raise ConfigError(message, hint="Pass use_zero1_dcp=False: one file for each rank.", option="use_zero1_dcp")
    if not TENSOR.is_made():
        message = "There are no groups of ranks, which checkpoints are divided by."
        raise ConfigError(message, hint="Call initialize_model_parallel() first, also with one process.")


def _name(*, by_data: bool = False) -> str:
    tp, pp, dp = ranks_of_axes()
    experts = f"_ep_rank_{EXPERT.rank():02d}" if EXPERT.size() > 1 and not by_data else ""
    return f"dp_rank_{dp if by_data else 0:02d}{experts}_tp_rank_{tp:02d}_pp_rank_{pp:02d}.pt"


def _is_zero(optimizer: Any) -> bool:
    inner = optimizer.optimizer if isinstance(optimizer, NxDOptimizer) else optimizer
    return isinstance(inner, NeuronZero1Optimizer)


def has_checkpoint(checkpoint_dir_str: PathLike) -> bool:
    """Return whether a folder has a complete checkpoint.

    Args:
        checkpoint_dir_str: folder of all checkpoints.
    """
    return bool(completed_tags(local_path(checkpoint_dir_str)))


def load_checkpoint(
    path: PathLike,
    tag: str | int | None = None,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    num_workers: int = 8,
    strict: bool = True,
    use_zero1_dcp: bool = False,
) -> Any:
    """Load this rank's part of a checkpoint; all ranks call it.

    Args:
        path: folder of all checkpoints.
        tag: name of the checkpoint; None: the one that was completed last.
        model: the model, or a dict which gets the states.
        optimizer: the optimizer, or a dict which gets the states.
        scheduler: the scheduler.
        num_workers: how many ranks of a machine read at once; all do.
        strict: the model has the same names.
        use_zero1_dcp: not supported.

    Returns:
        The `user_content`, or None.

    Raises:
        ConfigError: there is no complete checkpoint, it was saved with other degrees, or a rank's file is missing.
    """
    _require_ranks(use_zero1_dcp)
    finalize_checkpoint()
    folder = local_path(path) / _complete(local_path(path), tag)
    if model is not None:
        _require_degrees(folder / "model", expert=EXPERT.size())
        _load(model, folder / "model" / _name(), strict=strict)
    if optimizer is not None:
        has_zero = dict(_parts(folder / "optim")).get("data", 1) > 1
        if not isinstance(optimizer, dict):
            _require_zero(folder, has_zero, _is_zero(optimizer))
            has_zero = _is_zero(optimizer)
        sizes = {"data": ZERO1.size()} if has_zero else {"expert": EXPERT.size()}
        _require_degrees(folder / "optim", **sizes)
        _load(optimizer, folder / "optim" / _name(by_data=has_zero))
    if scheduler is not None:
        _load(scheduler, folder / "scheduler.pt")
    content = folder / "user_content.pt"
    with ending_together("Load another checkpoint."):
        return serialization.read_file(content) if content.exists() else None


def _complete(folder: Path, tag: str | int | None) -> str:
    """Name of a checkpoint that all ranks load; one without marks, such as a converted one, is loaded by its tag."""
    tags = completed_tags(folder)
    problem = None
    if tag is None and not tags:
        problem = f"there is no complete checkpoint under {folder}."
    elif tag is not None and not (folder / str(tag)).is_dir():
        problem = f"there is no checkpoint {folder / str(tag)}; complete are: {', '.join(tags) or 'none'}."
    elif tag is not None and str(tag) not in tags and (folder / str(tag) / "checkpoint").exists():
        problem = f"{folder / str(tag)} was begun, and is not complete; complete are: {', '.join(tags) or 'none'}."
    hint = "Pass the folder of all checkpoints, which save_checkpoint wrote, and the tag of a complete one."
    require_everywhere(problem, hint, error=RuntimeConfigError, path=str(folder), tag=tag, tags=tags)
    chosen = tags[-1] if tag is None else str(tag)
    require_agreement("checkpoints to load", {"tag": chosen})
    return chosen


def _load(target: Any, file: Path, *, strict: bool = True) -> None:
    """Load a file on all ranks, which end together if one of them cannot."""
    require_file(file)
    has_files = Path(serialization.tensors_folder(str(file))).is_dir()
    with ending_together("Load a checkpoint of this model."):
        read = serialization.read_file
        states = serialization.load_shared_tensors(file, _shared(file)) if has_files else read(file)
        give(target, states, strict=strict)


def _shared(file: Path) -> dict[int, str]:
    """Files of tensors that all ranks of experts have alike: NxD writes them for the first rank alone."""
    facts = file.with_name(f"{file.name}.info.pt")
    if EXPERT.size() == 1 or not facts.exists():
        return {}
    folder = serialization.tensors_folder(str(file)).replace(f"_ep_rank_{EXPERT.rank():02d}_", "_ep_rank_00_")
    alike = [number for number, one in serialization.read_file(facts).items() if not one["expert_model_parallel"]]
    return {number: serialization.tensor_file(folder, number) for number in alike}


def _parts(folder: Path) -> Iterator[tuple[str, int]]:
    """Degrees with which a folder was written."""
    found = [match for match in map(_NAME.fullmatch, sorted(_names(folder))) if match]
    ranks = [tuple(map(int, match.groups(default="0"))) for match in found]
    for place, name in enumerate(("data", "expert", "tensor", "pipeline")):
        yield name, 1 + max((rank[place] for rank in ranks), default=0)


def _names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()] if folder.is_dir() else []


def _require_degrees(folder: Path, data: int = 1, expert: int = 1) -> None:
    """Require that a folder was written with the degrees of this run."""
    saved = dict(_parts(folder))
    own = {"data": data, "expert": expert, "tensor": TENSOR.size(), "pipeline": PIPELINE.size()}
    problem = None
    if _names(folder) and saved != own:
        text = ", ".join(f"{name} {saved[name]} (here {own[name]})" for name in own if saved[name] != own[name])
        problem = f"the files in {folder} were saved with other degrees: {text}."
    hint = "Load with the degrees of the run that saved it, merge the parts first, or copy files that are missing."
    require_everywhere(problem, hint, saved=saved, degrees=own)


def _require_zero(folder: Path, is_saved: bool, is_used: bool) -> None:
    problem = None
    if is_saved != is_used and (is_saved or ZERO1.size() > 1):
        kinds = ("ZeRO-1", "an optimizer without ZeRO-1")
        problem = f"{folder / 'optim'} has the states of {kinds[not is_saved]}, and this is {kinds[not is_used]}."
    hint = "Set zero_one_enabled as in the run that saved it, or copy files that are missing."
    require_everywhere(problem, hint, error=RuntimeConfigError, is_saved=is_saved)


def finalize_checkpoint() -> None:
    """Wait until the files of an asynchronous save are written, and mark it as complete; all ranks call it."""
    WRITER.finish()
