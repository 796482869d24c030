"""Diffusion pipelines under the rules of Optimum Neuron, and the classes of their components.

A pipeline has its VAE's halves as `vae_encoder` and `vae_decoder` too, and takes pictures of any size.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
from pathlib import Path
from typing import Any, NoReturn

from optimum.neuron._classes import DoorType, under_rules
from optimum.neuron._log import logger

import optimum_neuron
from optimum_neuron.errors import ModelError
from optimum_neuron.kinds.diffusion import CompiledComponent
from optimum_neuron.options.peer_attributes import upstream_rules

_PICTURES = ("image", "mask_image", "control_image")


class _Components(type):
    """The class of classes of components, whose instances are told by their class in diffusers or transformers."""

    def __instancecheck__(cls, instance: Any) -> bool:
        names = [base.__name__ for base in type(instance).__mro__]
        return isinstance(instance, CompiledComponent) and cls._is_of(names)

    def _is_of(cls, names: list[str]) -> bool:
        return any(fnmatch.fnmatchcase(name, part) for name in names for part in vars(cls).get("parts", ()))

    def __call__(cls, *args: Any, **options: Any) -> NoReturn:
        message = f"{cls.__name__} cannot be made by itself: a compiled pipeline has its components."
        raise ModelError(message, hint="Call from_pretrained of the pipeline's class.", name=cls.__name__)


class NeuronModelTextEncoder(metaclass=_Components):
    """A compiled text encoder."""

    parts = ("CLIPTextModel*", "*T5EncoderModel", "Gemma*", "Qwen*", "LlamaModel")


class NeuronModelUnet(metaclass=_Components):
    """A compiled U-Net."""

    parts = ("UNet*",)


class NeuronModelTransformer(metaclass=_Components):
    """A compiled diffusion transformer."""

    parts = ("*Transformer?DModel", "*TransformerModel")


class NeuronControlNetModel(metaclass=_Components):
    """A compiled ControlNet."""

    parts = ("ControlNetModel",)


class NeuronMultiControlNetModel(metaclass=_Components):
    """Several compiled ControlNets in one."""

    parts = ("MultiControlNetModel",)


class _Half:
    """A half of a compiled VAE."""

    def __init__(self, vae: Any) -> None:
        self._vae = vae
        self.config = vae.config


class NeuronModelVaeEncoder(_Half):
    """The encoder of a compiled VAE; a call takes pictures and returns the distribution of latents."""

    def __call__(self, sample: Any, **options: Any) -> Any:
        """Encode pictures."""
        return self._vae.encode(sample, **options)


class NeuronModelVaeDecoder(_Half):
    """The decoder of a compiled VAE; a call takes latents and returns pictures."""

    def __call__(self, latent_sample: Any, **options: Any) -> Any:
        """Decode latents."""
        return self._vae.decode(latent_sample, **options)


class DiffusionDoor:
    """What every class of pipelines changes."""

    @classmethod
    def from_pretrained(cls, model_id: str | Path, *args: Any, **options: Any) -> Any:
        """Load an exported pipeline, or export one with `export=True`; see the class in `optimum_neuron`."""
        with upstream_rules():
            return under_rules(super().from_pretrained(model_id, *args, **options), diffusion_door)

    @classmethod
    def from_pipe(cls, pipeline: Any, **options: Any) -> Any:
        """Return a pipeline of this class with the programs of another one."""
        return under_rules(super().from_pipe(pipeline, **options), diffusion_door)

    @property
    def vae_encoder(self) -> NeuronModelVaeEncoder | None:
        """The encoder of the VAE; None: it was not compiled."""
        return NeuronModelVaeEncoder(self.vae) if "vae_encoder" in self.prepared.parts else None

    @property
    def vae_decoder(self) -> NeuronModelVaeDecoder | None:
        """The decoder of the VAE; None: it was not compiled."""
        return NeuronModelVaeDecoder(self.vae) if "vae_decoder" in self.prepared.parts else None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make pictures, with the arguments of the stock pipeline; given pictures are resized to the compiled size."""
        call = inspect.signature(self.stock.__call__).bind_partial(self, *args, **kwargs)
        sizes = self.neuron_config.resolutions()
        size = call.arguments.get("height"), call.arguments.get("width")
        height, width = size if size in sizes else sizes[0]
        for name in _PICTURES:
            if call.arguments.get(name) is not None:
                call.arguments[name] = _resized(call.arguments[name], name, height, width)
        return super().__call__(*call.args[1:], **call.kwargs)


def _resized(picture: Any, name: str, height: int, width: int) -> Any:
    """A picture, or each of several, of a size; tensors stay."""
    if isinstance(picture, (list, tuple)):
        return [_resized(one, name, height, width) for one in picture]
    if not hasattr(picture, "resize") or getattr(picture, "size", None) == (width, height):
        return picture
    if not isinstance(getattr(picture, "size", None), tuple):
        return picture
    logger.info("%s is resized from %dx%d to %dx%d, as compiled.", name, *picture.size, width, height)
    return picture.resize((width, height))


@functools.cache
def diffusion_door(original: type) -> type:
    """Return a class of pipelines under the rules of Optimum Neuron."""
    names = {"original": original, "__doc__": original.__doc__, "__module__": "optimum.neuron"}
    metaclass = type("DiffusionDoorType", (DoorType, type(original)), {})
    return metaclass(original.__name__, (DiffusionDoor, original), names)


def __getattr__(name: str) -> type:
    if name.startswith("_"):
        raise AttributeError(name)
    return diffusion_door(getattr(optimum_neuron, name))
