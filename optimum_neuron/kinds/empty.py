"""A transformers model without weights, to be captured: built from its configuration, or a copy of one in memory."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ..base.transformers_types import PreTrainedModel
from ..base.wording import first_line
from ..errors import ConfigError, ModelError
from ..models import cast_weights, without_weights
from ..options.configuration import CompileConfig
from ..sources import ModelSource, find_task
from ..weights import Shards


def empty_model(source: ModelSource, config: CompileConfig, *, attention: str | None, trust_remote_code: bool) -> Any:
    """Build the model of a task in the dtype of a configuration; parameters have shapes and no values.

    A module in memory stays as it is. `attention` is transformers' implementation of attention; None: the model's own.
    """
    import transformers

    options = {} if attention is None else {"attn_implementation": attention}
    auto_class = getattr(transformers, find_task(config.task, source.config.model_type).auto_class)
    try:
        if source.module is not None:
            model = _without_weights(source.module)
            if attention is not None:
                model.set_attn_implementation(attention)
        else:
            with without_weights():
                model = auto_class.from_config(
                    copy.deepcopy(source.config), trust_remote_code=trust_remote_code, **options
                )
            model.tie_weights()
    except (ValueError, TypeError, ImportError, AttributeError, LookupError, RuntimeError, AssertionError) as error:
        model_type, way = source.config.model_type, "" if attention is None else f" with {attention} attention"
        message = f"transformers cannot build a {model_type} model for {config.task}{way}: {first_line(error)[:200]}"
        hint = "Check config.json, or pass another checkpoint."
        raise ModelError(message, hint=hint, **{"task": config.task, "model_type": model_type}) from error
    cast_weights(model, getattr(torch, config.torch_dtype))
    return model.eval()


def split_empty(model: PreTrainedModel, config: CompileConfig, *, ends: bool) -> Shards:
    """Divide such a model among the cores that a configuration asks for; `ends` divides its vocabulary too."""
    if config.tensor_parallel_size == 1:
        return Shards()
    if config.output_attentions:
        raise ConfigError(
            "output_attentions is not supported with tensor_parallel_size: each core has the weights of its own heads.",
            hint="Remove one of the two.",
            options=["output_attentions", "tensor_parallel_size"],
        )
    from ..models.generic import split_transformers

    return split_transformers(model, model, model.config, config.tensor_parallel_size, ends=ends)


def _without_weights(module: nn.Module) -> Any:
    """A copy of a model in which parameters have no values; tied ones stay tied."""
    from torch import nn

    empty = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
        for parameter in module.parameters()
    }
    return copy.deepcopy(module, empty)
