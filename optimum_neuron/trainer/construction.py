"""The steps of a trainer's `__init__` around upstream's: arguments are checked, and the model is distributed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel, TrainingArguments

from ..base.transformers_types import PreTrainedTokenizerBase
from ..distributed import (
    DistributedModel,
    distribute,
    is_distributed_here,
    require_agreement,
    shared_facts,
    wrap_blocks,
)
from ..errors import ConfigError
from .arguments import NeuronArgumentsMixin


def with_processing_class(keywords: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return keywords with the tokenizer by its present name."""
    if tokenizer is None:
        return keywords
    if keywords.get("processing_class") is not None:
        message = "tokenizer and processing_class name the same argument."
        raise ConfigError(message, hint="Pass processing_class only.", arguments=["tokenizer", "processing_class"])
    return {**keywords, "processing_class": tokenizer}


def require_neuron_arguments(trainer: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return the training arguments of a call, whose place differs between trainers."""
    values = (keywords.get("args"), *positional)
    arguments = next((value for value in values if isinstance(value, TrainingArguments)), None)
    if not isinstance(arguments, NeuronArgumentsMixin):
        message = f"{trainer} needs NeuronTrainingArguments, not {type(arguments).__name__}."
        hint = "Use NeuronTrainingArguments, which takes the same keywords."
        raise ConfigError(message, hint=hint, option="args", type=type(arguments).__name__)
    return arguments


def lay_out(
    positional: tuple[Any, ...], keywords: dict[str, Any], arguments: TrainingArguments
) -> tuple[tuple[Any, ...], dict[str, Any], DistributedModel]:
    """Distribute the model of a call by its layout, and return the call's arguments for upstream."""
    model: Any = keywords.get("model", positional[0] if positional else None)  # the first argument of every trainer
    if arguments.world_size > 1:
        require_agreement(shared_facts(model, arguments))
    if not is_distributed_here(model, arguments):
        if isinstance(model, torch.nn.Module):
            wrap_blocks(model, arguments)
        return positional, keywords, DistributedModel()
    adapter = keywords.get("peft_config")
    if adapter is not None and isinstance(model, PreTrainedModel):
        # An adapter is distributed with its model, so it has to be there.
        from peft import get_peft_model

        model = get_peft_model(model, adapter)
    keywords = {name: value for name, value in keywords.items() if name != "peft_config" or adapter is None}
    if "model" in keywords:
        keywords["model"] = model
    else:
        positional = (model, *positional[1:])
    return positional, keywords, distribute(model, arguments)


@contextlib.contextmanager
def upstream_leaves_alone(distributed: DistributedModel, arguments: TrainingArguments) -> Iterator[None]:
    """Let upstream initialize around a model that is distributed already."""
    if distributed.whole is None:
        yield
        return
    # Accelerate is not to split it once more.
    arguments.fsdp_plugin_args = None
    # Upstream refuses to save such models with their optimizer, because it cannot; `saving.py` can.
    only_model, arguments.save_only_model = arguments.save_only_model, True
    try:
        yield
    finally:
        arguments.save_only_model = only_model
