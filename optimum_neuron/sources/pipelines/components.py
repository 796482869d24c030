"""Models of a diffusion pipeline: their class, and instances of it without weights, or with those of their folder."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ...base.transformers_types import PreTrainedConfig
from ...base.wording import first_line
from ...errors import ModelError
from ...models import cast_weights, without_weights
from ..pipeline_index import DiffusersConfig
from ..source import ModelSource
from .variants import NETS, module_from


def component_class(config: PreTrainedConfig | DiffusersConfig) -> Any:
    """Return the stock class of a component."""
    import diffusers
    import transformers

    library = diffusers if isinstance(config, DiffusersConfig) else transformers
    name = (config.architectures or ["a model without a name"])[0]
    if NETS in config.to_dict():
        from diffusers.models.controlnets.multicontrolnet import MultiControlNetModel

        return MultiControlNetModel
    if not hasattr(library, name):
        message = f"{library.__name__} has no {name}."
        raise ModelError(message, hint=f"Upgrade {library.__name__}, or check config.json.", architecture=name)
    return getattr(library, name)


def empty_component(source: ModelSource, dtype: str) -> nn.Module:
    """Build a component whose parameters have shapes and no values."""
    if source.module is not None:
        return _without_weights(source.module)
    kind = component_class(source.config)
    try:
        with without_weights():
            if isinstance(source.config, DiffusersConfig):
                model = module_from(kind, source.config.to_dict())
            else:
                model = kind._from_config(copy.deepcopy(source.config))
                model.tie_weights()
    except (ValueError, TypeError, ImportError, AttributeError, LookupError) as error:
        message = f"A {kind.__name__} cannot be built from {source.folder}: {first_line(error)}"
        raise ModelError(message, hint="Check its config.json.", folder=str(source.folder)) from error
    cast_weights(model, getattr(torch, dtype))
    return model.requires_grad_(False).eval()


def _without_weights(module: nn.Module) -> nn.Module:
    """A copy of a model in memory in which parameters have no values; tied ones stay tied."""
    empty: dict[int, Any] = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device="meta"), requires_grad=False)
        for parameter in module.parameters()
    }
    return copy.deepcopy(module, empty).eval()


def load_component(source: ModelSource, dtype: str) -> tuple[Any, list[str]]:
    """Load a component with its weights; also return the names of weights that the checkpoint lacks."""
    if source.module is not None:
        wanted = getattr(torch, dtype)
        return source.module if source.module.dtype == wanted else copy.deepcopy(source.module).to(wanted), []
    kind = component_class(source.config)
    try:
        model, info = kind.from_pretrained(source.folder, torch_dtype=getattr(torch, dtype), output_loading_info=True)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        message = f"A {kind.__name__} cannot be loaded from {source.folder}: {first_line(error)}"
        raise ModelError(message, hint="Download the pipeline again.", folder=str(source.folder)) from error
    return model.eval(), sorted(info["missing_keys"])
