"""The kind of a served model: which class answers, and how it is loaded, by the task of the export.

    source = load_source("all-minilm-l6-v2")
    print(choose_runner(source.folder, source.config))   # embedding, and the reason

A new kind is a row of `RUNNERS` and a module beside this one.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...base.core import Choice
from ...base.model_facts import facts_of
from ...base.transformers_types import PreTrainedConfig
from ...errors import RequestError
from ...exporters import read_folder
from ...options.configuration import is_export
from ...options.option import source_options
from ...sources import find_folder, find_task, infer_task

if TYPE_CHECKING:
    from ...modeling import NeuronModel
    from ..served import Replica, Served

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runner:
    """A kind of served model."""

    name: str
    task: str
    load: Callable[[Served, Any, bool], Replica]
    """Loads a model with this configuration; the flag says whether it is exported already."""

    def __str__(self) -> str:
        return self.name


_DECODER_DEFAULTS = {"continuous_batching": True, "batch_size": 8}
_ENCODER_DEFAULTS = {"batch_size": (1, 8)}
"""Options of models that are exported for serving, unless others are given."""

_LENGTHS, _LONGEST = (32, 128), 512
"""Compiled lengths of texts, and the most tokens, which a model may have less of."""


def _load_generator(served: Served, config: PreTrainedConfig, is_exported: bool) -> Replica:
    from ...modeling import NeuronModelForCausalLM, load_preprocessor
    from ..drafts import load_draft
    from ..generator import Generator

    spec = served.spec
    adapters = {"max_loras": len(spec.adapters)} if spec.adapters else {}
    model = load_model(NeuronModelForCausalLM, served, config, is_exported, {**_DECODER_DEFAULTS, **adapters})
    for name, folder in spec.adapters.items():
        model.load_adapter(folder, adapter_name=name)
    tokenizer = load_preprocessor("AutoTokenizer", find_folder(spec.tokenizer or model.source_folder))
    if spec.chat_template is not None:
        tokenizer.chat_template = spec.chat_template
    return Generator(
        model,
        tokenizer,
        max_queue_size=served.max_queue_size,
        on_finished=served.note_finished,
        allow_block_sharing=spec.allow_block_sharing,
        settings=load_draft(model, **spec.draft) if spec.draft else {},
    )


def _load_embedder(served: Served, config: PreTrainedConfig, is_exported: bool) -> Replica:
    from ...modeling import NeuronModelForEmbedding, NeuronSentenceTransformer
    from .embedding import Embedder

    is_decoder = any(name.endswith("ForCausalLM") for name in config.architectures or ())
    # Without a pooling module, a decoder saved without its head is one too, as in vLLM.
    has_modules = (find_folder(served.spec.source) / "modules.json").is_file()
    is_decoder = is_decoder or (not has_modules and not is_exported and _only_generates(config.model_type))
    kind, defaults = (
        (NeuronModelForEmbedding, {}) if is_decoder else (NeuronSentenceTransformer, _encoder_defaults(config))
    )
    return Embedder(load_model(kind, served, config, is_exported, defaults), served)


def _only_generates(model_type: str) -> bool:
    """Whether models of a type are decoders."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )

    return model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and model_type not in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _load_scorer(served: Served, config: PreTrainedConfig, is_exported: bool) -> Replica:
    from ...modeling import NeuronModelForTextReranking
    from .scoring import Scorer

    if config.num_labels != 1:
        message = f"{served.spec.source} has {config.num_labels} labels, but /score and /rerank need a model with one."
        raise RequestError(message, hint="Serve a cross-encoder.", status=404, num_labels=config.num_labels)
    defaults = _encoder_defaults(config)
    return Scorer(load_model(NeuronModelForTextReranking, served, config, is_exported, defaults), served)


def _load_transcriber(served: Served, config: PreTrainedConfig, is_exported: bool) -> Replica:
    from ... import modeling
    from ..options import require_packages
    from .speech import Transcriber

    require_packages("python_multipart", "soundfile", "soxr")
    # Whisper says when words are said by the weights of its cross-attention.
    defaults = {"output_attentions": True} if config.model_type == "whisper" else {}
    kind = getattr(modeling, find_task("automatic-speech-recognition", config.model_type).model_class)
    return Transcriber(load_model(kind, served, config, is_exported, defaults), served)


def _load_painter(served: Served, config: PreTrainedConfig, is_exported: bool) -> Replica:
    from ...modeling.diffusion import NeuronDiffusionPipeline
    from .images import Painter

    # A pipeline takes `export` for checkpoints only.
    export = {} if is_exported else {"export": True}
    return Painter(NeuronDiffusionPipeline.from_pretrained(served.spec.source, **export, **served.spec.options), served)


def load_model(
    kind: type[NeuronModel], served: Served, config: PreTrainedConfig, is_exported: bool, defaults: Mapping[str, Any]
) -> Any:
    """Load the model of a server, and write its artifacts into the folder for them if they are not there.

    Args:
        kind: class of the model.
        served: the model of the server.
        config: configuration of the model, which must match the artifacts.
        is_exported: whether the source is exported already.
        defaults: options of an export, unless the model of the server has others.
    """
    from ...modeling import CHECKPOINT_OPTIONS, load_artifacts

    spec = served.spec
    if is_exported:
        return kind.from_pretrained(spec.source, export=False, **spec.options)
    if spec.artifacts is None or not is_export(spec.artifacts):
        model = kind.from_pretrained(spec.source, export=True, **{**defaults, **spec.options})
        if spec.artifacts is not None:
            model.save_pretrained(spec.artifacts)
        return model
    location = source_options(spec.options)
    named = {name: value for name, value in spec.options.items() if name not in (*location, *CHECKPOINT_OPTIONS)}
    folder = find_folder(spec.source, **location)
    model = load_artifacts(kind, spec.artifacts, folder, config, folder, named)
    logger.info("Successfully loaded pre-compiled model artifacts from %s", spec.artifacts)
    return model


def _encoder_defaults(config: PreTrainedConfig) -> dict[str, Any]:
    longest = min(_LONGEST, facts_of(config).max_position_embeddings or _LONGEST)
    return {**_ENCODER_DEFAULTS, "sequence_length": [*(one for one in _LENGTHS if one < longest), longest]}


RUNNERS = (
    Runner(name="generation", task="text-generation", load=_load_generator),
    Runner(name="embedding", task="feature-extraction", load=_load_embedder),
    Runner(name="scoring", task="text-classification", load=_load_scorer),
    Runner(name="transcription", task="automatic-speech-recognition", load=_load_transcriber),
    Runner(name="image_generation", task="text-to-image", load=_load_painter),
)


def choose_runner(folder: Path, config: PreTrainedConfig, task: str = "auto") -> Choice[Runner]:
    """Return the kind of a model, with the reason.

    Args:
        task: the requested task of a checkpoint, or "auto".
    """
    if is_export(folder):
        name, reason = read_folder(folder).config.task, "the folder was exported for {}"
    elif task == "auto" and (folder / "modules.json").is_file():
        name, reason = "feature-extraction", "modules.json of sentence-transformers is in the folder, so it is for {}"
    else:
        choice = infer_task(config, task)
        name, reason = choice.value, f"the model is for {{}}: {choice.reason}"
    runner = next((one for one in RUNNERS if one.task == name), None)
    if runner is None:
        message = f"{folder} is a model for {name}, which the server has no endpoint for."
        hint = f"Serve a model for {', '.join(one.task for one in RUNNERS)}."
        raise RequestError(message, hint=hint, status=404, task=name)
    return Choice(value=runner, reason=reason.format(name))
