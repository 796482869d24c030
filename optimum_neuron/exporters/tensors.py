"""Open the tensors that a compiled model is bound to, and the reference model to compare it with.

Most checkpoints are mapped as they are. Some architectures rename or fuse tensors while transformers loads them
(Mixtral's experts, GPT-NeoX's head); these go through transformers' own loader.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ..core import Choice
from ..errors import ModelError, WeightsError
from ..models.registry import cast_parameters
from ..weights import Checkpoint, StateDict, TensorSource
from .kinds import kind_of
from .quantization import dequantizing, method_of, quantization_of
from .source import ModelSource, served_task
from .tasks import find_task

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

SEED = 0
"""Seed of the random numbers that replace missing weights."""


def open_tensors(
    source: ModelSource,
    sources: Mapping[str, tuple[str, ...]],
    *,
    task: str,
    family: str,
    dtype: str,
    trust_remote_code: bool = False,
) -> Choice[TensorSource]:
    """Return the tensors of a checkpoint under the names that `sources` asks for, and how they were opened.

    Raises:
        WeightsError: there are no safetensors in the folder, or tensors are missing in them.
        ModelError: transformers cannot load the checkpoint.
    """
    names = {name for group in sources.values() for name in group}
    if source.module is not None:
        random = sorted(names & set(source.random_weights))
        reason = (
            f"loaded by transformers; random numbers: {', '.join(random)}" if random else "a copy of those in memory"
        )
        return Choice(value=tensors_in_memory(source.module, names, source.name), reason=reason)
    checkpoint = Checkpoint.open(source.folder)
    missing = sorted(names - checkpoint.specs.keys())
    quantization = quantization_of(source.config)
    if quantization is None and (not missing or not kind_of(task, source.config.model_type).converts(family)):
        return Choice(value=checkpoint, reason="mapped from the checkpoint's safetensors")
    model = load_original(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code, needed=names)
    if quantization is not None:
        reason = f"loaded by transformers, which dequantizes them from {method_of(quantization)} to {dtype}"
    else:
        reason = (
            f"loaded by transformers, which converts this architecture's tensors ({missing[0]} is not in the files)"
        )
    return Choice(value=_state_dict(model, f"{source.folder}, converted by transformers"), reason=reason)


def tensors_in_memory(
    tensors: Mapping[str, torch.Tensor] | torch.nn.Module, names: Collection[str], origin: str
) -> StateDict:
    """Copies of tensors, so that later changes of them, as in training, are not seen.

    Args:
        tensors: by name, or the module that has them.
        names: those that are needed.
        origin: what to call them in messages.

    Raises:
        WeightsError: some are no tensors with values; all are named.
    """
    import torch

    state = dict(_state_dict(tensors, origin).tensors if isinstance(tensors, torch.nn.Module) else tensors)
    wrong = [f"{name} is a {type(value).__name__}" for name, value in state.items() if not torch.is_tensor(value)]
    wrong += [f"{name} is on the device meta" for name in names if getattr(state.get(name), "is_meta", False)]
    if wrong:
        shown = "; ".join(wrong[:12]) + (f"; and {len(wrong) - 12} more" if len(wrong) > 12 else "")
        raise WeightsError(
            f"The weights of {origin} are not tensors with values: {shown}.",
            hint="Pass a model that was loaded with its weights, its state dict, or a folder.",
            problems=wrong,
        )
    if state.keys() >= set(names):  # otherwise binding rejects them, with the nearest of all names
        state = {name: state[name].detach().to("cpu", copy=True) for name in names}
    return StateDict(tensors=state, origin=origin)


def _state_dict(model: Any, origin: str) -> StateDict:
    # A tied tensor has several names, and the state dict of a model may have been cut to one of them.
    named = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    return StateDict(tensors={**{n: t.detach() for n, t in named.items()}, **model.state_dict()}, origin=origin)


def fill_missing(source: ModelSource, *, task: str, dtype: str, trust_remote_code: bool = False) -> ModelSource:
    """Load a checkpoint whose weights are incomplete, and let transformers fill missing ones with random numbers.

    The numbers are the same each time. A warning names the tensors. A complete checkpoint is returned as it is.

    Args:
        source: the checkpoint.
        task: what it is compiled for; the class of the task decides which weights are needed.
        dtype: torch's name of the dtype to load it in.
        trust_remote_code: let the checkpoint's own code run.

    Raises:
        ModelError: transformers cannot load it.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model, missing = _load(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code)
    if not missing:
        return source
    logger.warning(
        "%s lacks %d weights of a %s, which are random numbers now: %s. Results that depend on them "
        "mean nothing until the model is trained.",
        source.name,
        len(missing),
        type(model).__name__,
        ", ".join(missing),
    )
    return dataclasses.replace(source, module=model.eval(), random_weights=tuple(missing))


def load_original(
    source: ModelSource,
    *,
    task: str,
    dtype: str,
    trust_remote_code: bool = False,
    needed: Collection[str] | None = None,
) -> Any:
    """Return the reference model: transformers' on the CPU, in evaluation mode.

    Args:
        source: the checkpoint, with the transformers configuration to use; a model in memory is returned itself.
        task: what for: a task has an auto class.
        dtype: torch's name of the dtype to load it in.
        trust_remote_code: let the checkpoint's own code run.
        needed: tensors that must be in the checkpoint; None: all.

    Raises:
        ModelError: transformers cannot load it.
        WeightsError: tensors are missing, which transformers would fill with random numbers.
    """
    import torch

    if source.module is not None:
        return source.module if source.module.dtype == getattr(torch, dtype) else _in_dtype(source.module, dtype)
    model, missing = _load(source, task=task, dtype=dtype, trust_remote_code=trust_remote_code)
    if missing := [name for name in missing if needed is None or name in needed]:
        served = served_task(source.config)
        hint = "Download the checkpoint again, or save it with save_pretrained()."
        if served is not None and served.value != task:
            hint = f"Export it for {served.value}, or pass a checkpoint that was trained for {task}."
        raise WeightsError(
            f"{len(missing)} tensors of the model in {source.folder} are missing: {', '.join(missing[:12])}.",
            hint=f"{hint} To fill them with random numbers, pass --allow_missing_weights (Python: "
            "allow_missing_weights=True).",
            problems=missing,
        )
    return model.eval()


def _load(source: ModelSource, *, task: str, dtype: str, trust_remote_code: bool) -> tuple[Any, list[str]]:
    """The reference model in transformers, and the weights that the checkpoint lacks."""
    import torch
    import transformers

    folder = source.folder
    quantized = quantization_of(source.config) is not None
    try:
        model, info = getattr(transformers, find_task(task, source.config.model_type).auto_class).from_pretrained(
            folder,
            config=dequantizing(source.config),
            dtype=getattr(torch, dtype),
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise ModelError(
            f"transformers cannot load the model in {folder}: {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0]}",
            hint="Repair the checkpoint; to export without comparing, pass --disable-validation.",
            folder=str(folder),
        ) from error
    if quantized:
        # transformers leaves tensors that were not quantized in the dtype of the file.
        cast_parameters(model, getattr(torch, dtype))
    return model, sorted(info["missing_keys"])


def _in_dtype(model: Any, dtype: str) -> Any:
    """A copy of a model in memory, which stays as it is."""
    import torch

    return copy.deepcopy(model).to(getattr(torch, dtype))
