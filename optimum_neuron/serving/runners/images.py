"""`/v1/images/generations`: images of a compiled diffusion pipeline."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import io
import secrets
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch

from ...errors import RequestError
from ...runtime import HbmLedger
from ..answers import Call
from ..protocol import ImageRequest
from .base import BatchedModel
from .batcher import IsWanted

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

    from ..served import Served


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing:
    """One image of a request."""

    prompt: str
    seed: int
    negative_prompt: str | None
    settings: tuple[tuple[str, Any], ...]
    """Keywords of the pipeline that a whole batch has in common."""


class Painter(BatchedModel):
    """A pipeline that makes images of texts."""

    def __init__(self, model: Any, served: Served) -> None:
        model.set_progress_bar_config(disable=True)
        config = model.neuron_config
        self.resolutions = list(config.resolutions())
        self._parameters = inspect.signature(model.stock.__call__).parameters
        self.max_batch_size = config.batch_size * (config.num_images_per_prompt or 1)  # type: ignore[misc]
        super().__init__(model, served)

    @property
    def ledgers(self) -> tuple[HbmLedger, ...]:
        """Memory of the cores of all programs."""
        loaded = [one for copies in self.model.copies.values() for one in copies.loaded]
        return tuple(ledger for one in loaded for ledger in one.claim.ledgers)

    def drawings(self, body: ImageRequest) -> list[Drawing]:
        """Return the images that a body wants; they have seeds that follow each other."""
        size = body.resolution() or self.resolutions[0]
        if size not in self.resolutions:
            shown = ", ".join(f"{width}x{height}" for height, width in self.resolutions)
            message = f"The size {body.size} was not compiled; the model has {shown}."
            raise RequestError(message, hint="Send one of them.", status=400, param="size", sizes=shown)
        settings = {"height": size[0], "width": size[1]}
        for name in ("num_inference_steps", "guidance_scale", "negative_prompt"):
            if (value := getattr(body, name)) is None:
                continue
            if name not in self._parameters:
                message = f"{name} is not supported by {self.model.stock.__name__}."
                raise RequestError(message, hint="Remove it.", status=400, param=name)
            if name != "negative_prompt":
                settings[name] = value
        seed = secrets.randbits(32) if body.seed is None else body.seed
        shared = tuple(settings.items())
        return [
            Drawing(prompt=body.prompt, seed=seed + index, negative_prompt=body.negative_prompt, settings=shared)
            for index in range(body.n)
        ]

    def _batch_key(self, item: Drawing) -> Hashable:
        return item.settings, item.negative_prompt is None

    def _compute(self, items: list[Drawing], is_wanted: IsWanted) -> list[Any]:
        options: dict[str, Any] = dict(items[0].settings)
        if items[0].negative_prompt is not None:
            options["negative_prompt"] = [item.negative_prompt for item in items]
        if "num_images_per_prompt" in self._parameters:
            options["num_images_per_prompt"] = 1
        if "callback_on_step_end" in self._parameters:
            options["callback_on_step_end"] = lambda pipe, *_: _stop_unless(pipe, is_wanted)
        generators = [torch.Generator().manual_seed(item.seed % 2**63) for item in items]
        output = self.model([item.prompt for item in items], generator=generators, **options)
        return list(output.images)


def _stop_unless(pipe: DiffusionPipeline, is_wanted: IsWanted) -> dict[str, Any]:
    """Skip the steps that are left if nobody waits for the images."""
    if not is_wanted():
        pipe._interrupt = True  # diffusers' own switch, which pipelines read before each step
    return {}


async def draw(
    model: Painter, body: ImageRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any]:
    """Return the answer to a body."""
    drawings = model.drawings(body)
    images = await model.compute(drawings, call.within(body.timeout_s), priority=body.priority)
    written = await model.run(lambda: [_written(image, body.output_format) for image in images])
    data = [{"b64_json": text, "seed": item.seed} for text, item in zip(written, drawings, strict=True)]
    size = dict(drawings[0].settings)
    facts = {"output_format": body.output_format, "size": f"{size['width']}x{size['height']}", "model": name}
    return {"created": call.created, "data": data, **facts}


def _written(image: Any, form: str) -> str:
    file = io.BytesIO()
    image.convert("RGB").save(file, format=form)
    return base64.b64encode(file.getvalue()).decode()
