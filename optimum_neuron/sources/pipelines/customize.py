"""A pipeline with what is added to it: which class it then has, and its models in memory.

Without additions a pipeline's models are read from its folder when their programs are loaded; here, diffusers loads
those that change, on the host.

    custom = customize(source, "text-to-image", PipelineAdditions.from_options({"lora_model_ids": "style"}))
    prepare_pipeline(source, config, target, cache=cache, custom=custom)
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from ...base.foreign import pipeline_facts
from ...errors import ModelError
from ..source import ModelSource
from .adapters import apply_adapters
from .additions import DENOISERS, PipelineAdditions, load_additions
from .safety import SAFETY_CHECKER
from .stock import pipeline_class, stock_pipeline
from .variants import MULTI

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_ENDINGS = ("ControlNetImg2Img", "ControlNetInpaint", "ControlNet", "Img2Img", "Inpaint")
"""Variants in the names of pipelines."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Custom:
    """What an export takes in place of parts of a pipeline's folder."""

    kind: Any
    """Class of the pipeline in diffusers."""
    modules: Mapping[str, nn.Module] = dataclasses.field(default_factory=dict)
    """Models with weights."""
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Processors, and a safety checker, which stays on the host; None for parts that are left out."""
    additions: PipelineAdditions = dataclasses.field(default_factory=PipelineAdditions)


def customize(
    source: ModelSource,
    task: str,
    additions: PipelineAdditions,
    *,
    kind: type[DiffusionPipeline] | None = None,
    given: Mapping[str, Any] | None = None,
    **where: Any,
) -> Custom:
    """Load the models that are added to a pipeline, and put adapters on its own.

    Args:
        kind: class of the pipeline in diffusers; None takes that of its index and the task.
        given: parts in memory, in place of those in the folder.
        **where: fields of `SourceOptions`.
    """
    loaded = {**(given or {}), **load_additions(additions, source.folder, **where)}
    name = source.config.model_type
    if additions.controlnet_ids and kind is None:
        name = f"{_plain(name)}ControlNetPipeline"
    kind = kind or pipeline_class(name, task)
    if additions.controlnet_ids and "controlnet" not in inspect.signature(kind.__init__).parameters:
        message = f"diffusers' {kind.__name__} takes no ControlNets."
        hint = "Use NeuronDiffusionPipeline, which finds the class, or the class for ControlNets."
        raise ModelError(message, hint=hint, option="controlnet_ids", pipeline=kind.__name__)
    if isinstance(nets := loaded.get("controlnet"), list):
        loaded["controlnet"] = _joined(nets)
    elif nets is None and source.config.to_dict().get("controlnet", [None, None])[1] == MULTI:
        loaded["controlnet"] = _multi().from_pretrained(str(source.folder / "controlnet"))
    if additions.lora_model_ids or additions.ip_adapter_id:
        pipe = stock_pipeline(source, kind, loaded)
        before = {id(part) for part in pipe.components.values()}
        apply_adapters(pipe, additions, **where)
        adapted = {*DENOISERS, *(pipeline_facts(pipe)._lora_loadable_modules or ())}
        loaded |= {
            name: part
            for name, part in pipe.components.items()
            if part is not None and (name in adapted or id(part) not in before)
        }
    is_compiled = {name: isinstance(part, nn.Module) and name != SAFETY_CHECKER for name, part in loaded.items()}
    return Custom(
        kind=kind,
        modules={name: part for name, part in loaded.items() if is_compiled[name]},
        others={name: part for name, part in loaded.items() if not is_compiled[name]},
        additions=additions,
    )


def _plain(name: str) -> str:
    """`StableDiffusionXLImg2ImgPipeline` is of the models `StableDiffusionXL`."""
    stem = name.removesuffix("Pipeline")
    return next((stem.removesuffix(ending) for ending in _ENDINGS if stem.endswith(ending)), stem)


def _multi() -> Any:
    from diffusers.models.controlnets.multicontrolnet import MultiControlNetModel

    return MultiControlNetModel


def _joined(nets: list[Any]) -> Any:
    """Several ControlNets as one model, which adds up what they return."""
    names = sorted({type(net).__name__ for net in nets})
    if names != ["ControlNetModel"]:
        message = f"controlnet_ids: several of {', '.join(names)} cannot be used in one pipeline."
        raise ModelError(message, hint="Pass one.", option="controlnet_ids", classes=names)
    return _multi()(nets)
