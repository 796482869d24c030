"""Adapters of a compiled pipeline that change its weights, without compiling: LoRA, and the scales of image adapters.

diffusers reads a LoRA adapter into stock models with the pipeline's own weights; what it makes of them replaces the
weights of the programs. Methods have the names and arguments of diffusers; adapters are always fused.

    pipe.load_lora_weights("style", weight_name="style.safetensors", adapter_name="style")
    pipe.set_adapters("style", 0.7)
    pipe.unload_lora_weights()
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from ...base.foreign import module_facts, pipeline_facts
from ...errors import ConfigError, NeuronError
from ...exporters import Prepared
from ...exporters.diffusion import PreparedPipeline
from ...options.option import SOURCE_OPTIONS, check_known
from ...sources.pipelines import (
    DENOISERS,
    IMAGE_ADAPTERS,
    PipelineAdditions,
    denoiser_name,
    denoiser_of,
    empty_component,
    fuse_loras,
)


class AdapterMethods:
    """Methods of diffusers' adapters, for compiled pipelines."""

    prepared: PreparedPipeline
    _loras: Mapping[str, tuple[str, str | None, float]] = MappingProxyType({})
    """File and scale of each LoRA adapter by its name."""
    _exported: PipelineAdditions | None = None
    """What was added to the pipeline before them."""
    _plain: Mapping[str, dict[str, torch.Tensor]] = MappingProxyType({})
    """Weights of components before the first adapter."""

    replace_weights: Callable[..., None]
    """Of `NeuronDiffusionPipelineBase`."""
    close: Callable[[], None]
    """Of `NeuronDiffusionPipelineBase`."""

    def load_lora_weights(
        self,
        pretrained_model_name_or_path_or_dict: str | Path,
        adapter_name: str | None = None,
        weight_name: str | None = None,
        **where: object,
    ) -> None:
        """Add a LoRA adapter to the weights, beside the adapters that they have.

        Args:
            pretrained_model_name_or_path_or_dict: folder, file, or Hub model ID.
            adapter_name: its name; None: lora_0, lora_1, ...
            weight_name: file in the folder or repository.
            **where: fields of `SourceOptions` that say how files are downloaded.
        """
        check_known(where, SOURCE_OPTIONS, what="load_lora_weights")
        loras = dict(self._loras)
        name = adapter_name or f"lora_{len(loras)}"
        if name in loras:
            message = f"There is an adapter named {name!r} already."
            raise ConfigError(message, hint="Pass another adapter_name.", adapter_name=name)
        loras[name] = (str(pretrained_model_name_or_path_or_dict), weight_name, 1.0)
        self._put(loras, **where)

    def put_loras(self, loras: Sequence[tuple[str, str | None, str, float]], **where: object) -> None:
        """Add LoRA adapters to the weights: model, file, name and scale of each."""
        try:
            self._put({name: (model, file, scale) for model, file, name, scale in loras}, **where)
        except NeuronError:
            self.close()
            raise

    def set_adapters(self, adapter_names: str | Sequence[str], adapter_weights: Any = None) -> None:
        """Set the scales of LoRA adapters; adapters that are not named get 0.

        Args:
            adapter_names: one or several.
            adapter_weights: a number for all, or one for each; None: 1.
        """
        names = [adapter_names] if isinstance(adapter_names, str) else list(adapter_names)
        if not (known := self._loras):
            message = f"There is no adapter named {', '.join(names)}: no LoRA adapter is loaded."
            raise ConfigError(message, hint="Call load_lora_weights first.", adapter_names=names)
        check_known(names, known, what="the loaded adapters")
        several = isinstance(adapter_weights, (list, tuple))
        weights = list(adapter_weights) if several else [adapter_weights] * len(names)
        if len(weights) != len(names) or not all(isinstance(one, (int, float)) or one is None for one in weights):
            message = f"adapter_weights={adapter_weights!r} are not {len(names)} numbers."
            raise ConfigError(message, hint="Pass one number for each adapter.", option="adapter_weights")
        scales = {name: 1.0 if one is None else float(one) for name, one in zip(names, weights, strict=True)}
        self._put({name: (model, file, scales.get(name, 0.0)) for name, (model, file, _) in self._loras.items()})

    def fuse_lora(self, lora_scale: float = 1.0, **ignored: object) -> None:
        """Do nothing but check the scale: adapters are in the weights already."""
        if lora_scale != 1.0:
            hint = "Set the scale with set_adapters."
            raise ConfigError(f"lora_scale={lora_scale} is not supported.", hint=hint, option="lora_scale")

    def unload_lora_weights(self) -> None:
        """Restore the weights without the adapters that were loaded here; those of the export stay."""
        self._put({})

    def get_list_adapters(self) -> dict[str, list[str]]:
        """Return the names of LoRA adapters that each component has."""
        names = list(self._loras)
        return {component: names for component in self._plain} if names else {}

    def get_active_adapters(self) -> list[str]:
        """Return the LoRA adapters with a scale other than 0."""
        return [name for name, (*_, scale) in self._loras.items() if scale]

    def set_ip_adapter_scale(self, scale: Any) -> None:
        """Change the scales of the image adapters that the pipeline was exported with.

        Args:
            scale: a number, or one for each adapter.
        """
        before = self._image_adapter_scales
        if before is None:
            hint = "Pass ip_adapter_id to the export."
            raise ConfigError("The pipeline has no image adapters.", hint=hint, option="ip_adapter_scale")
        scales = list(scale) if isinstance(scale, (list, tuple)) else [scale] * len(before)
        if len(scales) != len(before) or not all(isinstance(one, (int, float)) for one in scales):
            message = f"scale={scale!r} is not a number for each of {len(before)} image adapters."
            raise ConfigError(message, hint="Pass numbers; scales of blocks need an export.", option="scale")
        if 0 in before:
            message = f"The pipeline has image adapters with the scale 0 ({before}), so their weights are 0."
            raise ConfigError(message, hint="Export with another ip_adapter_scale.", option="scale")
        name = denoiser_name(self.prepared.stock) or DENOISERS[0]
        state = _state(self.prepared.parts[name])
        for key, tensor in state.items():
            if (index := _adapter_of(key)) is not None:
                state[key] = tensor * (scales[index] / before[index])
        self.replace_weights(**{name: state})
        self.prepared.models[name].image_adapter_scales = [float(one) for one in scales]
        self._note_scales(name, self.prepared.models[name].image_adapter_scales)

    def require_image_adapters(self, given: Mapping[str, Any]) -> None:
        """Check that a call has images for image adapters only if there are some."""
        for name in ("ip_adapter_image", "ip_adapter_image_embeds"):
            if given.get(name) is not None and self._image_adapter_scales is None:
                message = f"{name} needs an image adapter, and the pipeline was exported without one."
                raise ConfigError(message, hint=f"Remove {name}, or export with ip_adapter_id.", option=name)

    @property
    def _image_adapter_scales(self) -> list[float] | None:
        return module_facts(denoiser_of(self.prepared.stock)).image_adapter_scales

    def _note_scales(self, component: str, scales: list[float]) -> None:
        """Note the scales that are in the weights, for an export of the pipeline."""
        part = self.prepared.parts[component]
        data = part.source.config.to_dict()
        rows = [{**row, "scale": scale} for row, scale in zip(data[IMAGE_ADAPTERS], scales, strict=True)]
        config = type(part.source.config)({**data, IMAGE_ADAPTERS: rows})
        part = dataclasses.replace(part, source=dataclasses.replace(part.source, config=config))
        parts = {**self.prepared.parts, component: part}
        additions = dataclasses.replace(self.prepared.additions, ip_adapter_scale=tuple(scales))
        self.prepared = dataclasses.replace(self.prepared, parts=parts, additions=additions)
        if self._exported is not None:
            self._exported = dataclasses.replace(self._exported, ip_adapter_scale=tuple(scales))

    def _put(self, loras: dict[str, tuple[str, str | None, float]], **where: object) -> None:
        """Let the weights be the plain ones with these adapters."""
        stock = self.prepared.stock
        names = [n for n in pipeline_facts(stock)._lora_loadable_modules or () if n in self.prepared.parts]
        plain = self._plain or {name: _state(self.prepared.parts[name]) for name in names}
        models = {name: _with_weights(self.prepared.parts[name], plain[name]) for name in names}
        if loras:
            pipe = copy.copy(stock)
            for name, model in models.items():
                setattr(pipe, name, model)
            fuse_loras(pipe, [(model, file, name, scale) for name, (model, file, scale) in loras.items()], **where)
        self.replace_weights(**{name: _wanted(model, plain[name]) for name, model in models.items()})
        self._plain, self._loras = plain, loras
        if self._exported is None:
            self._exported = self.prepared.additions
        added = self._exported.with_loras([(model, file, name, scale) for name, (model, file, scale) in loras.items()])
        self.prepared = dataclasses.replace(self.prepared, additions=added)


def _adapter_of(weight: str) -> int | None:
    """The number of the image adapter whose values a weight is of."""
    _, found, rest = weight.partition(".to_v_ip.")
    return int(rest.partition(".")[0]) if found else None


def _state(part: Prepared) -> dict[str, torch.Tensor]:
    """The weights of a program by their names in the checkpoint; those of a file stay there."""
    assert part.tensors is not None, "a pipeline has weights"
    names = sorted({name for group in part.weight_sources.values() for name in group})
    return {name: part.tensors.value.join([name])[0] for name in names}


def _with_weights(part: Prepared, state: Mapping[str, torch.Tensor]) -> Any:
    """A stock model with weights; parameters that the program does not read are 0."""
    source = dataclasses.replace(part.source, module=None)
    model = empty_component(source, part.config.torch_dtype)
    for name, tensor in [*model.named_parameters()]:
        owner, _, attribute = name.rpartition(".")
        value = state[name].clone() if name in state else torch.zeros(tensor.shape, dtype=tensor.dtype)
        setattr(model.get_submodule(owner), attribute, torch.nn.Parameter(value, requires_grad=False))
    return model


def _wanted(model: Any, names: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    state = model.state_dict()
    return {name: state.get(name, tensor) for name, tensor in names.items()}
