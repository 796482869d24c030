"""What an export puts into a diffusers pipeline: another UNet, ControlNets, LoRA and image adapters, by name.

It reads names and configurations, and loads modules that are replaced. It does not know what a compiled pipeline is.

    >>> from optimum_neuron.sources.pipelines.additions import PipelineAdditions
    >>> additions = PipelineAdditions.from_options({"lora_model_ids": "style", "lora_scales": 0.5})
    >>> additions.to_dict()
    {'lora_model_ids': ['style'], 'lora_scales': [0.5]}
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, ModelError
from ...files.plain_json import read_object
from ...options.peer_attributes import joined
from ..source import find_folder

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

ADDITION_SYNONYMS = {
    "unet": "unet_id",
    "controlnet_id": "controlnet_ids",
    "ip_adapter_ids": "ip_adapter_id",
    "ip_adapter_subfolders": "ip_adapter_subfolder",
    "ip_adapter_weight_names": "ip_adapter_weight_name",
    "ip_adapter_scales": "ip_adapter_scale",
}
"""Other names of options."""

ADDITION_GROUPS = {
    "lora_args": ("lora_model_ids", "lora_weight_names", "lora_adapter_names", "lora_scales"),
    "ip_adapter_args": ("ip_adapter_id", "ip_adapter_subfolder", "ip_adapter_weight_name", "ip_adapter_scale"),
}
"""Optimum Neuron's objects with several options as attributes, in this order, and the options."""

_OF_LORA, _OF_IP_ADAPTER = ADDITION_GROUPS["lora_args"], ADDITION_GROUPS["ip_adapter_args"]

DENOISERS = ("unet", "transformer")
"""Names in a pipeline of the model that runs in every step."""

_SHARED_SIZES = (
    "block_out_channels",
    "layers_per_block",
    "cross_attention_dim",
    "joint_attention_dim",
    "pooled_projection_dim",
    "caption_projection_dim",
)
"""Fields in which a ControlNet equals the network that it controls: they decide the shapes that both exchange."""
_UNET_SIZES = ("in_channels", "out_channels", "cross_attention_dim", "addition_embed_type")
"""Fields in which a UNet equals the one that it replaces."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PipelineAdditions:
    """What is added to a pipeline, with the names that Optimum Neuron has for it."""

    unet_id: str | None = None
    """Folder or id of a UNet, or of a pipeline with one, in place of the pipeline's."""
    controlnet_ids: tuple[str, ...] = ()
    """Folders or ids of ControlNets."""
    lora_model_ids: tuple[str, ...] = ()
    """Folders or ids of LoRA adapters, which are added to the weights."""
    lora_weight_names: tuple[str, ...] = ()
    """File of each adapter; empty: diffusers' default name, or the only one."""
    lora_adapter_names: tuple[str, ...] = ()
    """Name of each adapter; empty: lora_0, lora_1, ..."""
    lora_scales: tuple[float, ...] = ()
    """Factor of each adapter; empty: 1."""
    ip_adapter_id: tuple[str, ...] = ()
    """Folder or id of each image adapter; one may hold several."""
    ip_adapter_subfolder: tuple[str, ...] = ()
    """Folder of each image adapter inside of it."""
    ip_adapter_weight_name: tuple[str, ...] = ()
    """File of each image adapter."""
    ip_adapter_scale: tuple[float, ...] = ()
    """Factor of each image adapter; empty: 1."""

    def __post_init__(self) -> None:
        _require_lengths(self, _OF_LORA)
        _require_lengths(self, _OF_IP_ADAPTER)
        names = self.lora_adapter_names
        if len(set(names)) != len(names):
            message = f"lora_adapter_names={list(names)} has a name twice."
            raise ConfigError(message, hint="Give each adapter its own name.", option="lora_adapter_names")
        if self.ip_adapter_id and not self.ip_adapter_weight_name:
            message = f"ip_adapter_id={list(self.ip_adapter_id)} has no file."
            hint = "Pass ip_adapter_weight_name, for example 'ip-adapter_sd15.safetensors'."
            raise ConfigError(message, hint=hint, option="ip_adapter_weight_name")

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> PipelineAdditions:
        """Read them among other options: one value or several, under each of their names."""
        # Neither None nor an empty list is a value.
        named = ((name, value) for name, value in _flat(options) if value or isinstance(value, (int, float)))
        given = joined({}, ((name, ADDITION_SYNONYMS.get(name, name), value) for name, value in named))
        return cls(**{name: _READERS[name](name, value) for name, value in given.items()})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without options that were not given."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value}

    def __bool__(self) -> bool:
        return bool(self.to_dict())

    def without_lora(self) -> PipelineAdditions:
        """Return the same without LoRA adapters: what only an export can add."""
        return dataclasses.replace(self, lora_model_ids=(), lora_weight_names=(), lora_adapter_names=(), lora_scales=())

    def with_loras(self, loras: Sequence[tuple[str, str | None, str, float]]) -> PipelineAdditions:
        """Return the same with further LoRA adapters; names that are there already are left out of both."""
        every = [*self.loras, *loras]
        models, files, names, scales = zip(*every, strict=True) if every else ((), (), (), ())
        return dataclasses.replace(
            self,
            lora_model_ids=models,
            lora_weight_names=files if all(files) else (),
            lora_adapter_names=names if len(set(names)) == len(names) else (),
            lora_scales=scales,
        )

    def example_images(self) -> dict[str, Any]:
        """Return the arguments of a call with an image for each image adapter."""
        from PIL import Image

        images = [Image.new("RGB", (64, 64), (200, 80, 40))] * len(self.ip_adapter_weight_name)
        return {"ip_adapter_image": images} if images else {}

    @property
    def loras(self) -> list[tuple[str, str | None, str, float]]:
        """Model, file, name and scale of each LoRA adapter."""
        number = len(self.lora_model_ids)
        files = self.lora_weight_names or (None,) * number
        names = self.lora_adapter_names or tuple(f"lora_{index}" for index in range(number))
        return list(zip(self.lora_model_ids, files, names, self.lora_scales or (1.0,) * number, strict=True))


def denoiser_name(pipe: DiffusionPipeline) -> str | None:
    """Return the name of the model that runs in every step of a pipeline; None if it has another one."""
    return next((name for name in DENOISERS if getattr(pipe, name, None) is not None), None)


def denoiser_of(pipe: DiffusionPipeline) -> Any:
    """Return the model that runs in every step of a pipeline, or None."""
    name = denoiser_name(pipe)
    return None if name is None else getattr(pipe, name)


def split_additions(options: Mapping[str, Any]) -> tuple[PipelineAdditions, dict[str, Any]]:
    """Take what is added to a pipeline out of a set of keywords; return it, and the others."""
    names = {*ADDITION_OPTIONS, *ADDITION_SYNONYMS, *ADDITION_GROUPS}
    rest = {name: value for name, value in options.items() if name not in names}
    return PipelineAdditions.from_options(options), rest


def _flat(options: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The options, with those of Optimum Neuron's objects one by one."""
    flat = [(name, options[name]) for name in (*ADDITION_OPTIONS, *ADDITION_SYNONYMS) if name in options]
    for group, names in ADDITION_GROUPS.items():
        if (given := options.get(group)) is not None:
            flat += [(name, getattr(given, _attribute(name), None)) for name in names]
    return flat


def _attribute(name: str) -> str:
    """`lora_model_ids` is the attribute `model_ids`, and `ip_adapter_id` is `model_id`."""
    return "model_id" if name == "ip_adapter_id" else name.removeprefix("lora_").removeprefix("ip_adapter_")


def _text(name: str, value: object) -> str:
    if not isinstance(value, (str, Path)):
        raise _wrong_type(name, value, "a folder or an id")
    return str(value)


def _texts(name: str, value: object) -> tuple[str, ...]:
    values = [value] if isinstance(value, (str, Path)) else value
    if not isinstance(values, (list, tuple)) or not all(isinstance(item, (str, Path)) for item in values):
        raise _wrong_type(name, value, "one name or a list of them")
    return tuple(map(str, values))


def _scales(name: str, value: Any) -> tuple[float, ...]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    try:
        scales = tuple(float(item) for item in values)
        if any(isinstance(item, bool) for item in values) or not all(map(math.isfinite, scales)):
            raise ValueError(value)
        return scales
    except (TypeError, ValueError):
        raise _wrong_type(name, value, "one number or a list of them") from None


def _wrong_type(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} is not {expected}.", hint=f"Pass {expected}.", option=name, value=value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "unet_id": _text,
    "lora_scales": _scales,
    "ip_adapter_scale": _scales,
    **dict.fromkeys(("controlnet_ids", "lora_model_ids", "lora_weight_names", "lora_adapter_names"), _texts),
    **dict.fromkeys(("ip_adapter_id", "ip_adapter_subfolder", "ip_adapter_weight_name"), _texts),
}
ADDITION_OPTIONS = tuple(field.name for field in dataclasses.fields(PipelineAdditions))
"""Keywords of an export that are fields of `PipelineAdditions`."""


def _require_lengths(additions: PipelineAdditions, names: tuple[str, ...]) -> None:
    """Reject lists beside each other that differ in length."""
    first = names[0]
    numbers = {name: len(getattr(additions, name)) for name in names if getattr(additions, name)}
    if numbers and first not in numbers:
        message = f"{', '.join(numbers)} without {first}: there is no adapter to load."
        raise ConfigError(message, hint=f"Pass {first}.", option=first)
    if first == "ip_adapter_id" and numbers.get(first) == 1:
        numbers.pop(first)  # one repository may hold several adapters
        if numbers.get("ip_adapter_subfolder") == 1:
            numbers.pop("ip_adapter_subfolder")
    if len(set(numbers.values())) > 1:
        listed = ", ".join(f"{number} {name}" for name, number in numbers.items())
        message = f"The options of adapters differ in length: {listed}."
        raise ConfigError(message, hint="Pass one value for each adapter.", lengths=numbers)


def load_additions(
    additions: PipelineAdditions, pipeline: Path, *, dtype: object = None, **where: object
) -> dict[str, Any]:
    """Load the modules that replace or join those of a pipeline, as keywords of diffusers' `from_pretrained`.

    Args:
        pipeline: folder of the pipeline, whose configurations they must fit.
        dtype: dtype of their weights; None: their own.
        **where: fields of `SourceOptions`, of the pipeline; branch and folder are not those of an addition.

    Returns:
        `unet` and `controlnet`, where given.
    """
    where = {name: value for name, value in where.items() if name not in ("revision", "subfolder", "gguf_file")}
    loaded: dict[str, Any] = {}
    if additions.unet_id is not None:
        loaded["unet"] = _load(_fitting_unet(additions.unet_id, pipeline, where), dtype)
    folders = [_fitting_controlnet(name, additions.unet_id, pipeline, where) for name in additions.controlnet_ids]
    nets = [_load(folder, dtype) for folder in folders]
    if nets:
        loaded["controlnet"] = nets[0] if len(nets) == 1 else nets
    return loaded


def _load(folder: Path, dtype: object) -> Any:
    import diffusers

    name = read_object(folder / "config.json").get("_class_name")
    module_class = getattr(diffusers, str(name), None)
    if module_class is None:
        message = f"{folder / 'config.json'} names the class {name!r}, which diffusers does not have."
        raise ModelError(message, hint="Pass a folder that diffusers saved.", folder=str(folder), class_name=name)
    try:
        return module_class.from_pretrained(str(folder), torch_dtype=dtype, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).strip().partition("\n")[0]
        message = f"diffusers cannot load {folder}: {first}"
        raise ModelError(message, hint="Download it again.", folder=str(folder)) from error


def _fitting_unet(name: str, pipeline: Path, where: dict[str, Any]) -> Path:
    """Folder of a UNet that can replace the pipeline's."""
    own = pipeline / "unet" / "config.json"
    if not own.is_file():
        message = f"unet_id={name!r} cannot be used: the pipeline {pipeline} has no UNet."
        raise ModelError(message, hint="Remove unet_id.", option="unet_id", pipeline=str(pipeline))
    folder = find_folder(name, **where)
    if not (folder / "config.json").is_file():
        folder = folder / "unet"
    config = read_object(own)
    kind = str(config.get("_class_name"))
    _require_same(folder, config, _UNET_SIZES, "unet_id", name, pipeline, kind=kind)
    return folder


def _fitting_controlnet(name: str, unet: str | None, pipeline: Path, where: dict[str, Any]) -> Path:
    """Folder of a ControlNet for the pipeline's UNet or transformer."""
    controlled = next((pipeline / part for part in DENOISERS if (pipeline / part).is_dir()), None)
    if controlled is None:
        message = f"controlnet_ids cannot be used: the pipeline {pipeline} has no UNet and no transformer."
        raise ModelError(message, hint="Remove controlnet_ids.", option="controlnet_ids", pipeline=str(pipeline))
    folder = find_folder(name, **where)
    if not (folder / "config.json").is_file() and (folder / "controlnet").is_dir():
        folder = folder / "controlnet"
    config = read_object(controlled / "config.json")
    _require_same(folder, config, _SHARED_SIZES, "controlnet_ids", name, pipeline, kind="ControlNet")
    return folder


def _require_same(
    folder: Path,
    expected: Mapping[str, Any],
    fields: tuple[str, ...],
    option: str,
    name: str,
    pipeline: Path,
    *,
    kind: str,
) -> None:
    """Reject a model whose configuration is that of another base model, or whose class is of another kind."""
    path = folder / "config.json"
    if not path.is_file():
        message = f"{option}: {name!r} has no config.json."
        raise ModelError(message, hint="Pass a folder or an id that diffusers saved.", option=option, name=name)
    config = read_object(path)
    found = str(config.get("_class_name"))
    if kind not in found:
        message = f"{option}: {name!r} is of the class {found}, not {kind}."
        raise ModelError(message, hint=f"Pass the folder or id of a {kind}.", option=option, name=name, found=found)
    shared = [field for field in fields if field in config and field in expected]
    different = {field: (config[field], expected[field]) for field in shared if config[field] != expected[field]}
    if different:
        listed = ", ".join(f"{field}={one!r} instead of {other!r}" for field, (one, other) in different.items())
        message = f"{option}: {name!r} is of another base model than {pipeline}: {listed}."
        hint = "Pass one that was trained on this model."
        raise ModelError(message, hint=hint, option=option, name=name, different=sorted(different))
