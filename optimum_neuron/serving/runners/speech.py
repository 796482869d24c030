"""`/v1/audio/transcriptions` and `/v1/audio/translations`: the text of a recording, with times.

transformers' pipeline for speech recognition does it, so Whisper reads recordings longer than its window.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from transformers import StoppingCriteria, StoppingCriteriaList
from transformers.utils.chat_template_utils import mark_control_tokens

from ...base.foreign import module_facts
from ...base.transformers_types import PreTrainedTokenizerBase
from ...errors import RequestError, nearest
from ..answers import Call
from ..protocol import AudioRequest, TranscriptionRequest
from ..recordings import read_recording
from .base import BatchedModel
from .batcher import IsWanted

if TYPE_CHECKING:
    from ..served import Served


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recording:
    """A recording, and how it is transcribed."""

    samples: Any
    timestamps: bool | str | None
    """ "word", True for segments, or None."""
    settings: dict[str, Any]
    """Keywords of `generate`."""
    seed: int | None


class _Unwanted(StoppingCriteria):
    """Ends a transcription that nobody waits for."""

    def __init__(self, is_wanted: IsWanted) -> None:
        self._is_wanted = is_wanted

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: object) -> torch.Tensor:
        """Return whether to end, for each row."""
        return torch.full((len(input_ids),), not self._is_wanted())


class Transcriber(BatchedModel):
    """A model that writes what is said."""

    max_batch_size: ClassVar[int] = 1

    def __init__(self, model: Any, served: Served) -> None:
        from ...pipelines import pipeline

        self._pipeline = pipeline("automatic-speech-recognition", model)
        self.rate = self._pipeline.feature_extractor.sampling_rate
        self.is_whisper = model.config.model_type == "whisper"
        self.is_generative = model.can_generate()
        super().__init__(model, served)

    @property
    def languages(self) -> dict[str, str]:
        """ISO codes and English names to the names that Whisper's `generate` takes; empty for one language."""
        from transformers.models.whisper.tokenization_whisper import LANGUAGES

        settings = module_facts(self.model).generation_config
        if not self.is_whisper or settings is None or not getattr(settings, "is_multilingual", False):
            return {}
        codes = [token.strip("<|>") for token in settings.lang_to_id]
        return {
            spelling: LANGUAGES[code] for code in codes if code in LANGUAGES for spelling in (code, LANGUAGES[code])
        }

    @property
    def only_language(self) -> str | None:
        """The language of a Whisper for one."""
        return "english" if self.is_whisper and not self.languages else None

    def settings(self, body: AudioRequest) -> dict[str, Any]:
        """Return the keywords of `generate`."""
        if not self.is_generative:
            wrong = [name for name in ("prompt", "temperature", "language") if getattr(body, name, None)]
            if wrong or not isinstance(body, TranscriptionRequest):
                raise _unsupported(wrong[0] if wrong else "translation", "the model does not generate text")
            return {}
        sampling = {"do_sample": True, "temperature": body.temperature} if body.temperature else {"do_sample": False}
        settings: dict[str, Any] = {"num_beams": 1, **sampling}
        if body.prompt and not self.is_whisper:
            raise _unsupported("prompt", "only Whisper has prompts")
        if body.prompt:
            settings["prompt_ids"] = prompt_ids(self._pipeline.tokenizer, body.prompt)
        return settings | self._language(body)

    def _language(self, body: AudioRequest) -> dict[str, Any]:
        languages = self.languages
        if not isinstance(body, TranscriptionRequest):
            if not languages:
                raise _unsupported("translation", "the model is for one language")
            return {"task": "translate"}
        if body.language is None:
            return {"task": "transcribe"} if languages else {}
        wanted = body.language.lower()
        if not languages:
            if wanted not in ("en", "english"):
                raise _unsupported(f"language {body.language!r}", "the model is for one language")
            return {}
        if wanted not in languages:
            raise _unsupported(f"language {body.language!r}", f"the model has others{nearest(wanted, languages) or ''}")
        return {"task": "transcribe", "language": languages[wanted]}

    def timestamps(self, samples: Any, body: AudioRequest, *, words: bool) -> bool | str | None:
        """Return the timestamps that a body needs, in the pipeline's form."""
        if words:
            if self.is_generative and not (self.is_whisper and self.model.neuron_config.returns_attentions):
                reason = "it needs Whisper, exported with output_attentions=True"
                raise _unsupported("timestamp_granularities 'word'", reason, "timestamp_granularities")
            return "word"
        is_long = self.is_whisper and len(samples) > self._pipeline.feature_extractor.n_samples
        wants_times = body.response_format in ("srt", "vtt", "verbose_json")
        return True if self.is_whisper and (is_long or wants_times) else None

    def _batch_key(self, item: Recording) -> Hashable:
        return id(item)

    def _compute(self, items: list[Recording], is_wanted: IsWanted) -> list[dict[str, Any]]:
        (item,) = items
        settings = item.settings
        if self.is_generative:
            settings = {**settings, "stopping_criteria": StoppingCriteriaList([_Unwanted(is_wanted)])}
        if item.seed is not None:
            torch.manual_seed(item.seed)
        # With words, transformers' pipeline counts the token of the language, which has no time, and fails.
        languages = {"return_language": True} if self.languages and item.timestamps is True else {}
        times = {"return_timestamps": item.timestamps} if item.timestamps else {}
        recording = {"raw": item.samples, "sampling_rate": self.rate}
        return [self._pipeline(recording, generate_kwargs=settings, **times, **languages)]


def prompt_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> torch.Tensor:
    """Return the tokens of a prompt, as Whisper's `get_prompt_ids`; special tokens and times in it stay text."""
    added = sorted(tokenizer.added_tokens_encoder, key=len, reverse=True)
    marked = mark_control_tokens(f" {text.strip()}", re.compile("|".join(map(re.escape, added)) or "(?!)"))
    try:
        ids = tokenizer(marked, add_special_tokens=False, sanitize_control_tokens=True)["input_ids"]
    except ValueError as error:
        raise RequestError(f"The prompt cannot be tokenized: {error}", status=400, param="prompt") from error
    return torch.tensor([tokenizer.convert_tokens_to_ids("<|startofprev|>"), *ids])


async def transcribe(
    model: Transcriber, body: AudioRequest, call: Call, *, name: str, adapter: str | None = None
) -> dict[str, Any] | str:
    """Return the answer to a body: JSON, or a text for `text`, `srt`, and `vtt`."""
    samples = await model.run(read_recording, body.file, model.rate)
    settings = await model.run(model.settings, body)
    granularities = body.timestamp_granularities if isinstance(body, TranscriptionRequest) else []
    kinds = [False] if not granularities else [kind == "word" for kind in dict.fromkeys(granularities)]
    items = [
        Recording(
            samples=samples,
            timestamps=model.timestamps(samples, body, words=words),
            settings=settings,
            seed=body.seed,
        )
        for words in kinds
    ]
    results = await model.compute(items, call.within(body.timeout_s), priority=body.priority)
    duration = len(samples) / model.rate
    by_kind = dict(zip(kinds, results, strict=True))
    first = results[0]
    text, usage = first["text"].strip(), {"type": "duration", "seconds": max(round(duration), 1)}
    if body.response_format == "json":
        return {"text": text, "usage": usage}
    if body.response_format == "text":
        return text + "\n"
    segments = _segments(by_kind.get(False, first), duration, body.temperature)
    if body.response_format != "verbose_json":
        return subtitles(segments, body.response_format)
    answer = {
        "task": "transcribe" if isinstance(body, TranscriptionRequest) else "translate",
        "language": settings.get("language") or _language_of(by_kind.get(False, first)) or model.only_language,
        "duration": duration,
        "text": text,
        "usage": usage,
    }
    if False in by_kind:
        answer["segments"] = segments
    if True in by_kind:
        answer["words"] = [
            {"word": chunk["text"].strip(), "start": start, "end": end}
            for chunk in by_kind[True].get("chunks", ())
            for start, end in [_times(chunk, duration)]
        ]
    return answer


def _segments(result: dict[str, Any], duration: float, temperature: float) -> list[dict[str, Any]]:
    """Parts of a result with their times; the whole recording for a model without times."""
    chunks = result.get("chunks") or [{"text": result["text"], "timestamp": (0.0, duration)}]
    segments = []
    for index, chunk in enumerate(chunks):
        start, end = _times(chunk, duration)
        raw = chunk["text"].encode()
        segments.append(
            {
                "id": index,
                "start": start,
                "end": end,
                "text": chunk["text"],
                "temperature": temperature,
                "compression_ratio": len(raw) / len(zlib.compress(raw)) if raw else 1.0,
                # transformers' pipeline does not return them.
                **dict.fromkeys(("seek", "tokens", "avg_logprob", "no_speech_prob")),
            }
        )
    return segments


def _times(chunk: dict[str, Any], duration: float) -> tuple[float, float]:
    """Begin and end in seconds, within the recording; a part that was cut ends with it."""
    start, end = chunk["timestamp"]
    return min(float(start or 0.0), duration), min(float(duration if end is None else end), duration)


def _language_of(result: dict[str, Any]) -> str | None:
    return next((chunk["language"] for chunk in result.get("chunks", ()) if chunk.get("language")), None)


def subtitles(segments: list[dict[str, Any]], form: str) -> str:
    """Return segments as a file of subtitles, "srt" or "vtt"."""
    mark = "," if form == "srt" else "."

    def clock(seconds: float) -> str:
        whole = round(seconds * 1000)
        return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{mark}{whole % 1000:03}"

    blocks = ["WEBVTT\n\n"] if form == "vtt" else []
    for number, segment in enumerate(segments, 1):
        head = f"{number}\n" if form == "srt" else ""
        text = " ".join(segment["text"].split()).replace("-->", "->")
        blocks.append(f"{head}{clock(segment['start'])} --> {clock(segment['end'])}\n{text}\n\n")
    return "".join(blocks)


def _unsupported(what: str, reason: str, param: str | None = None) -> RequestError:
    message = f"{what} is not supported: {reason.rstrip('.')}."
    return RequestError(message, status=400, param=param or what.split()[0])
