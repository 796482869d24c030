"""Bodies of `/v1/audio/transcriptions`, `/v1/audio/translations`, and `/v1/images/generations`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from .base import Many, Priority, Request, TimeLimit


class AudioRequest(Request):
    """What both bodies with a recording have in common: fields of a form, so numbers may be texts."""

    model_config = ConfigDict(strict=False)

    file: Annotated[bytes, Field(strict=True, min_length=1, max_length=2**28)]
    """A recording: wav, flac, ogg, or mp3."""
    prompt: Annotated[str, Field(max_length=10_000)] | None = None
    """Text before the recording, whose spelling and style the model follows (Whisper)."""
    response_format: Literal["json", "text", "srt", "verbose_json", "vtt"] = "json"
    temperature: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stream: Literal[False, "false", "False"] = False
    priority: Priority = 0
    timeout_s: TimeLimit = None


class TranscriptionRequest(AudioRequest):
    """Body of `/v1/audio/transcriptions`."""

    language: Annotated[str, Field(min_length=2, max_length=32)] | None = None
    """ISO code or English name; None lets the model find out."""
    timestamp_granularities: Annotated[Many[Literal["word", "segment"]], Field(max_length=16)] = []

    @model_validator(mode="after")
    def _is_possible(self) -> TranscriptionRequest:
        if self.timestamp_granularities and self.response_format != "verbose_json":
            raise ValueError("timestamp_granularities needs response_format=verbose_json")
        return self


class TranslationRequest(AudioRequest):
    """Body of `/v1/audio/translations`, whose answer is English."""


class ImageRequest(Request):
    """Body of `/v1/images/generations`."""

    prompt: Annotated[str, Field(min_length=1, max_length=32_000)]
    n: Annotated[int, Field(ge=1, le=10)] = 1
    size: Annotated[str, Field(pattern=r"^(auto|[1-9]\d{0,4}x[1-9]\d{0,4})$")] | None = None
    """Width and height, "512x512"; None or "auto" for the first compiled one."""
    response_format: Literal["b64_json"] | None = None
    output_format: Literal["png", "jpeg", "webp"] = "png"
    quality: Literal["auto", "standard"] | None = None
    style: None = None
    background: Literal["auto", "opaque"] | None = None
    moderation: Literal["auto"] | None = None
    stream: Literal[False] = False
    # Those of diffusers.
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    negative_prompt: Annotated[str, Field(max_length=32_000)] | None = None
    num_inference_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    guidance_scale: Annotated[float, Field(ge=0, le=100)] | None = None
    priority: Priority = 0
    timeout_s: TimeLimit = None

    def resolution(self) -> tuple[int, int] | None:
        """Height and width, or None for the default."""
        if self.size in (None, "auto"):
            return None
        width, height = map(int, str(self.size).split("x"))
        return height, width
