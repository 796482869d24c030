"""A stock pipeline from the configurations of its folder: models have no weights, and missing files have stand-ins.

Folders of configurations, and downloads without weights, have no vocabularies. What a prompt says changes no shape, so
a stand-in returns as many zeros as the tokenizer would. A pipeline is built to be run dry, never to make pictures.

    pipe = bare_pipeline(source, pipeline_class(source.config.model_type), models)
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...base.foreign import pipeline_facts
from ...base.model_facts import facts_of
from ...base.wording import first_line
from ...errors import ModelError
from ...files.plain_json import read_object
from ..source import ModelSource
from .safety import SAFETY_CHECKER

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

DEFAULT_LENGTH = 77
"""Tokens of a prompt where neither a tokenizer nor a text encoder has a limit: those of CLIP."""
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model")
_LIBRARIES = ("diffusers", "transformers")
_SCHEDULER = "DDIMScheduler"
"""Scheduler of pipelines whose folder has none: it calls the model once in each step."""


class StandInTokenizer:
    """Returns zeros as the tokens of every prompt."""

    def __init__(self, model_max_length: int) -> None:
        self.model_max_length = model_max_length
        self.added_tokens_encoder: dict[str, int] = {}
        self.pad_token_id = self.eos_token_id = self.bos_token_id = 0

    def __call__(
        self, text: Any, *args: Any, padding: Any = False, max_length: int | None = None, **options: Any
    ) -> Any:
        """Return tokens and a mask of the greatest length, or of one token if they are not padded to it."""
        from transformers import BatchEncoding

        length = (max_length or self.model_max_length) if padding == "max_length" else 1
        shape = (1 if isinstance(text, str) else len(text), length)
        tokens = torch.zeros(shape, dtype=torch.int64)
        return BatchEncoding({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})

    def batch_decode(self, tokens: Any, **options: Any) -> list[str]:
        """Return an empty text for each row."""
        return [""] * len(tokens)

    def tokenize(self, text: str) -> list[str]:
        """Return no words: pipelines look for tokens of textual inversion among them."""
        return []


def bare_pipeline(source: ModelSource, kind: type[DiffusionPipeline], models: Mapping[str, Any]) -> Any:
    """Build a stock pipeline around models without weights.

    Args:
        source: folder of the pipeline; models, vocabularies and schedulers may be missing.
    """
    index, parameters = source.config.to_dict(), dict(inspect.signature(kind.__init__).parameters)
    parameters.pop("self")
    _require_models(source, kind, parameters, models)
    parts: dict[str, Any] = {}
    try:
        for name, parameter in parameters.items():
            if name == "requires_safety_checker":
                parts[name] = False
            elif (row := index.get(name)) is not None and not isinstance(row, (list, tuple)):
                parts[name] = row
            elif name in models or parameter.default is inspect.Parameter.empty or row is not None:
                parts[name] = (
                    models[name] if name in models else _part(source.folder / name, name, row, parameter, models)
                )
        return kind(**parts)
    except (OSError, ValueError, TypeError, RuntimeError, ImportError, AttributeError) as error:
        message = f"diffusers cannot build the {kind.__name__} in {source.folder}: {first_line(error)}"
        raise ModelError(message, hint="Check the folder.", folder=str(source.folder)) from error


def _require_models(
    source: ModelSource, kind: type[DiffusionPipeline], parameters: Mapping[str, Any], models: Mapping[str, Any]
) -> None:
    """Reject a pipeline without the models that every call needs."""
    optional = pipeline_facts(kind)._optional_components or ()
    missing = [
        name for name in ("unet", "transformer", "vae") if name in parameters and name not in (*models, *optional)
    ]
    encoders = [name for name in parameters if name.startswith("text_encoder")]
    if encoders and not any(name in models for name in encoders):
        missing.append(" or ".join(encoders))
    if missing:
        message = f"The {kind.__name__} in {source.folder} has no {', no '.join(missing)}."
        hint = "Pass a folder that save_pretrained() of the pipeline wrote."
        raise ModelError(message, hint=hint, folder=str(source.folder), missing=missing)


def _part(folder: Path, name: str, row: Any, parameter: Any, models: Mapping[str, Any]) -> Any:
    """A scheduler, tokenizer or processor of the folder; None, or what stands for it, where there are no files."""
    is_absent = row is not None and row[1] is None
    if is_absent or name == SAFETY_CHECKER:
        return None
    if name.startswith("tokenizer"):
        if row is not None and any((folder / file).is_file() for file in _VOCABULARIES):
            return _class_of(row).from_pretrained(folder)
        encoder = models.get(name.replace("tokenizer", "text_encoder"))
        return None if encoder is None else StandInTokenizer(_max_length(folder, encoder))
    if row is not None and folder.is_dir():
        return _class_of(row).from_pretrained(folder)
    return _scheduler(parameter.annotation) if name == "scheduler" else None


def _class_of(row: Any) -> Any:
    library, name = row
    if library not in _LIBRARIES:  # an index may name any module
        raise ValueError(f"{name} is of {library}, and parts of a pipeline are of {' or '.join(_LIBRARIES)}")
    return getattr(importlib.import_module(library), name)


def _max_length(folder: Path, encoder: Any) -> int:
    """Tokens of a prompt: the tokenizer's limit, or the positions of the text encoder."""
    path = folder / "tokenizer_config.json"
    limit = read_object(path).get("model_max_length") if path.is_file() else None
    positions = facts_of(encoder.config).max_position_embeddings or DEFAULT_LENGTH
    return int(min(limit or positions, positions if isinstance(positions, int) else DEFAULT_LENGTH))


def _scheduler(annotation: Any) -> Any:
    """The scheduler that a pipeline's class names, or one for all."""
    import diffusers

    is_one = isinstance(annotation, type) and issubclass(annotation, diffusers.SchedulerMixin)
    return annotation() if is_one else getattr(diffusers, _SCHEDULER)()
