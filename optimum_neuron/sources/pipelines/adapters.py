"""LoRA and image adapters on a stock diffusers pipeline, before it is compiled or its weights are replaced.

diffusers reads the files, so all formats that it knows work (its own, PEFT's, and kohya's). A LoRA adapter is added to
the weights, whose names and shapes stay as they were: a program serves every adapter. An image adapter adds layers; its
scale is put into the weights of its values, which attention is linear in, so it can be changed without compiling too.
This module does not know what a compiled pipeline is.

    apply_adapters(pipe, PipelineAdditions.from_options({"lora_model_ids": "style"}))
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.wording import first_line
from ...errors import ConfigError, ModelError, WeightsError
from .additions import DENOISERS, PipelineAdditions, denoiser_name

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

_WHERE = ("cache_dir", "force_download", "local_files_only", "token")
"""Fields of `SourceOptions` that say how files are downloaded; others are about the pipeline."""
_DEFAULT_FILE = "pytorch_lora_weights.safetensors"
"""Name that diffusers gives to a LoRA adapter."""


def apply_adapters(pipe: DiffusionPipeline, additions: PipelineAdditions, **where: object) -> None:
    """Add the adapters of a pipeline to its modules.

    Args:
        pipe: stock pipeline with weights, on the host.
        **where: fields of `SourceOptions`, of the pipeline.
    """
    downloads = {name: where[name] for name in _WHERE if name in where}
    if additions.lora_model_ids:
        fuse_loras(pipe, additions.loras, **downloads)
    if additions.ip_adapter_id:
        _load_image_adapters(pipe, additions, downloads)


def fuse_loras(pipe: DiffusionPipeline, loras: Sequence[tuple[str, str | None, str, float]], **downloads: Any) -> None:
    """Add LoRA adapters to the weights of a pipeline.

    Args:
        pipe: stock pipeline with weights, on the host.
        loras: model, file, name and scale of each.
        **downloads: how files are downloaded: keywords of diffusers' `load_lora_weights`.
    """
    if not hasattr(pipe, "load_lora_weights"):
        message = f"diffusers' {type(pipe).__name__} takes no LoRA adapters."
        raise ModelError(message, hint="Remove lora_model_ids.", option="lora_model_ids", pipeline=type(pipe).__name__)
    require_peft()
    for model, file, name, scale in loras:
        # One after the other: with several at once, diffusers 0.42 fails on text encoders of transformers 5.
        _load_lora(pipe, model, file, name, downloads)
        pipe.set_adapters([name], [scale])
        adapted = sorted({part for part, names in pipe.get_list_adapters().items() if names})
        pipe.fuse_lora(components=adapted, adapter_names=[name])
        pipe.unload_lora_weights()


def require_peft() -> None:
    """Reject LoRA adapters if PEFT is not installed, with which diffusers reads them."""
    if importlib.util.find_spec("peft") is None:
        hint = "Install the extra: pip install 'optimum-neuron-sim[training]'."
        raise ConfigError("LoRA adapters need PEFT, which is not installed.", hint=hint, package="peft")


def _load_lora(pipe: DiffusionPipeline, model: str, file: str | None, name: str, downloads: dict[str, Any]) -> None:
    details = {"adapter": model, "weight_name": file}
    if file is None and not Path(model).exists():
        file = _DEFAULT_FILE  # without it, diffusers asks the Hub for a list of files
    try:
        pipe.load_lora_weights(model, adapter_name=name, **({} if file is None else {"weight_name": file}), **downloads)
    except OSError as error:
        missing = Path(model).is_absolute() and not Path(model).exists()
        reason = "does not exist" if missing else f"cannot be loaded ({first_line(error)})"
        message = f"The LoRA adapter {model!r} {reason}."
        hint = "Check lora_model_ids, and name the file with lora_weight_names."
        raise ModelError(message, hint=hint, **details) from error
    except (ValueError, RuntimeError, KeyError, IndexError, AttributeError) as error:
        raise _other_model(pipe, f"The LoRA adapter {model!r}", _reason(error), details) from error
    if not any(name in names for names in pipe.get_list_adapters().values()):
        raise _other_model(pipe, f"The LoRA adapter {model!r}", "its names match no module", details)


def _reason(error: Exception) -> str:
    """The first line of an error, or the first mismatch of weights that torch lists below it."""
    title, _, listed = str(error).strip().partition("\n")
    return (
        listed.strip().partition("\n")[0] if title.startswith("Error(s) in loading state_dict") else first_line(error)
    )


def _other_model(pipe: DiffusionPipeline, subject: str, reason: str, details: dict[str, Any]) -> WeightsError:
    base = f"{type(pipe).__name__} of {pipe.name_or_path or 'this model'}"
    message = f"{subject} does not fit {base}: {reason.rstrip('.: ')}."
    hint = "Pass an adapter that was trained on this model."
    return WeightsError(message, hint=hint, reason=reason, **details)


def _load_image_adapters(pipe: DiffusionPipeline, additions: PipelineAdditions, downloads: dict[str, Any]) -> None:
    """Load image adapters, with their encoder of images, and put their scales into the weights."""
    if not hasattr(pipe, "load_ip_adapter"):
        name = type(pipe).__name__
        message = f"diffusers' {name} takes no image adapters."
        raise ModelError(message, hint="Remove ip_adapter_id.", option="ip_adapter_id", pipeline=name)
    models, files = list(additions.ip_adapter_id), list(additions.ip_adapter_weight_name)
    folders = list(additions.ip_adapter_subfolder) or [""]
    details = {"adapter": models, "weight_name": files}
    arguments = {"weight_name": files, **downloads}
    if "subfolder" in inspect.signature(pipe.load_ip_adapter).parameters:
        arguments["subfolder"] = folders if len(folders) > 1 else folders * len(files)
    try:
        pipe.load_ip_adapter(models, **arguments)
    except OSError as error:
        message = f"The image adapter {', '.join(models)} cannot be loaded ({first_line(error)})."
        hint = "Check ip_adapter_id, ip_adapter_subfolder, ip_adapter_weight_name, and the folder image_encoder."
        raise ModelError(message, hint=hint, **details) from error
    except (ValueError, RuntimeError, KeyError, AttributeError) as error:
        raise _other_model(pipe, f"The image adapter {', '.join(models)}", first_line(error), details) from error
    scales = additions.ip_adapter_scale or (1.0,) * len(files)
    scale_image_adapters(getattr(pipe, denoiser_name(pipe) or DENOISERS[0]), scales)


def image_values(module: Any) -> Iterator[tuple[str, int, Any]]:
    """Yield the layer of values of each image adapter in each attention: its name, the adapter's number, the layer."""
    for name, part in module.named_modules():
        if hasattr(part, "to_v_ip"):
            layers = part.to_v_ip if hasattr(part.to_v_ip, "__iter__") else [part.to_v_ip]
            for number, layer in enumerate(layers):
                yield f"{name}.to_v_ip.{number}", number, layer


def scale_image_adapters(module: Any, scales: Sequence[float]) -> None:
    """Multiply the values of image adapters by a factor each."""
    import torch

    layers = list(image_values(module))
    number = max(index for _, index, _ in layers) + 1
    if len(scales) != number:
        message = f"ip_adapter_scale has {len(scales)} values for {number} image adapters."
        raise ConfigError(message, hint="Pass one for each.", option="ip_adapter_scale", num_adapters=number)
    with torch.no_grad():
        for _, index, layer in layers:
            for parameter in layer.parameters():
                parameter.mul_(scales[index])
    module.image_adapter_scales = list(scales)
