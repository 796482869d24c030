"""The tasks that can be exported, as data: names, transformers' classes, and the class here that serves them.

It imports nothing heavy, so the command line can list them. The tasks of an architecture are defined by transformers'
own tables of auto classes: `architectures_of(task)` reads them.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """One task."""

    name: str
    """As transformers' pipelines and optimum spell it."""
    kind: str
    """Kind of its models: a key of `kinds.KINDS`."""
    model_class: str
    """Class in `optimum_neuron` that runs it."""
    auto_class: str
    """transformers' auto class that builds its models; empty: `components.py` knows the class of each model."""
    mapping: str
    """transformers' table of the architectures that serve it."""
    suffixes: tuple[str, ...]
    """Endings of class names that serve it, for code that comes with a checkpoint and is in no table."""
    apart: str = ""
    """Another table, whose architectures are left out: they have their own task."""
    is_listed: bool = True
    """Whether every class in the table serves this task; False: only classes with one of the `suffixes`."""
    output_type: str = ""
    """transformers' output class, where the reference model's own is not available."""
    pipeline: str | None = None
    more_pipelines: tuple[str, ...] = ()
    """Other pipelines that run its models."""


_ROWS = (
    ("fill-mask", "MaskedLM", "MASKED_LM", "ForMaskedLM", "MaskedLMOutput", "fill-mask"),
    ("text-classification", "SequenceClassification", "SEQUENCE_CLASSIFICATION", "ForSequenceClassification",
     "SequenceClassifierOutput", "text-classification zero-shot-classification"),
    ("token-classification", "TokenClassification", "TOKEN_CLASSIFICATION", "ForTokenClassification",
     "TokenClassifierOutput", "token-classification"),
    ("question-answering", "QuestionAnswering", "QUESTION_ANSWERING", "ForQuestionAnswering",
     "QuestionAnsweringModelOutput", "question-answering"),
    ("multiple-choice", "MultipleChoice", "MULTIPLE_CHOICE", "ForMultipleChoice", "MultipleChoiceModelOutput", None),
    ("image-classification", "ImageClassification", "IMAGE_CLASSIFICATION", "ForImageClassification",
     "ImageClassifierOutput", "image-classification"),
    ("semantic-segmentation", "SemanticSegmentation", "SEMANTIC_SEGMENTATION", "ForSemanticSegmentation",
     "SemanticSegmenterOutput", "image-segmentation"),
    ("object-detection", "ObjectDetection", "OBJECT_DETECTION", "ForObjectDetection", "", "object-detection"),
    ("zero-shot-image-classification", "ZeroShotImageClassification", "ZERO_SHOT_IMAGE_CLASSIFICATION", "", "",
     "zero-shot-image-classification"),
    ("depth-estimation", "DepthEstimation", "DEPTH_ESTIMATION", "ForDepthEstimation", "DepthEstimatorOutput",
     "depth-estimation"),
    ("audio-classification", "AudioClassification", "AUDIO_CLASSIFICATION", "ForAudioClassification",
     "SequenceClassifierOutput", "audio-classification"),
    ("automatic-speech-recognition", "CTC", "CTC", "ForCTC", "CausalLMOutput", "automatic-speech-recognition"),
    ("audio-frame-classification", "AudioFrameClassification", "AUDIO_FRAME_CLASSIFICATION",
     "ForAudioFrameClassification", "TokenClassifierOutput", None),
    ("audio-xvector", "XVector", "AUDIO_XVECTOR", "ForXVector", "XVectorOutput", None),
)  # fmt: skip
"""Task, ending of our class, transformers' table, ending of its classes, its output, its pipelines."""

_AUTO_CLASS = {"XVector": "AudioXVector"}
"""Our classes to transformers' auto classes of another name."""


def _task(
    kind: str,
    name: str,
    ours: str,
    table: str,
    suffixes: str = "",
    output: str = "",
    pipelines: str | None = None,
    **others: object,
) -> Task:
    pipeline, *more = pipelines.split() if pipelines else (None,)
    fields: dict[str, Any] = {
        "auto_class": f"AutoModelFor{_AUTO_CLASS.get(ours, ours)}",
        "mapping": f"MODEL_FOR_{table}_MAPPING_NAMES",
        "suffixes": tuple(suffixes.split()),
        "output_type": output,
        "pipeline": pipeline,
        "more_pipelines": tuple(more),
    }
    return Task(name=name, kind=kind, model_class=f"NeuronModelFor{ours}", **fields | others)


_DIFFUSION_ROWS = (
    ("image-to-image", ("Img2ImgPipeline", "Pix2PixPipeline", "KontextPipeline")),
    ("inpainting", ("InpaintPipeline",)),
    ("text-to-video", ("LTXPipeline", "WanPipeline")),
    ("unconditional-image-generation", ("DDPMPipeline", "DDIMPipeline")),
    ("text-to-image", ("Pipeline",)),
)
"""Task of diffusers' pipelines, and endings of their classes."""


def _diffusion(name: str, suffixes: tuple[str, ...]) -> Task:
    fields: dict[str, Any] = {"kind": "diffusion", "model_class": "NeuronDiffusionPipeline", "auto_class": ""}
    return Task(name=name, suffixes=suffixes, mapping="", is_listed=False, **fields)


_TABLE = [
    _task("decoder", "text-generation", "CausalLM", "CAUSAL_LM", "ForCausalLM LMHeadModel",
          pipelines="text-generation", is_listed=False),
    # Before encoder-decoders: transformers lists audio-language models among them too.
    _task("audio_text", "any-to-any", "MultimodalLM", "MULTIMODAL_LM", pipelines="any-to-any",
          apart="MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"),
    # Before the encoders: transformers lists some of these classes under fill-mask too.
    _task("seq2seq", "text2text-generation", "Seq2SeqLM", "SEQ_TO_SEQ_CAUSAL_LM",
          pipelines="text2text-generation summarization translation"),
    _task("image_text", "image-text-to-text", "ImageTextToText", "IMAGE_TEXT_TO_TEXT", pipelines="image-text-to-text"),
    *(_task("encoder", *row) for row in _ROWS),
    # The second kind of models that transcribe; which one a model is, `find_task` reads from its architecture.
    _task("speech", "automatic-speech-recognition", "SpeechSeq2Seq", "SPEECH_SEQ_2_SEQ", "ForSpeechSeq2Seq",
          pipelines="automatic-speech-recognition"),
    *(_diffusion(*row) for row in _DIFFUSION_ROWS),
    # Last: a class such as CLIPModel serves a task with its own head too.
    _task("encoder", "feature-extraction", "FeatureExtraction", "", "Model", "BaseModelOutputWithPooling",
          "feature-extraction image-feature-extraction", auto_class="AutoModel", mapping="MODEL_MAPPING_NAMES"),
]  # fmt: skip


@functools.cache
def other_tasks() -> frozenset[str]:
    """Tasks of transformers' tables and pipelines that cannot be exported, for example "text-recognition"."""
    from transformers.models.auto import modeling_auto
    from transformers.pipelines import SUPPORTED_TASKS

    others = set(vars(modeling_auto)) - {task.mapping for task in _TABLE}
    tables = (re.fullmatch(r"MODEL_FOR_(\w+)_MAPPING_NAMES", name) for name in others)
    names = {table[1].lower().replace("_", "-") for table in tables if table}
    return frozenset({*names, *SUPPORTED_TASKS} - {*TASKS, *SYNONYMS})


def kinds_of_task(name: str) -> tuple[Task, ...]:
    """Return a row for each kind of models that serve a task."""
    return tuple(task for task in _TABLE if task.name == name)


TASKS: dict[str, Task] = {task.name: kinds_of_task(task.name)[0] for task in _TABLE}
"""By name, in the order in which a class of transformers is looked up. If models of two kinds serve a task, this is the
first; `find_task` decides by the model.
"""


def register_task(task: Task) -> None:
    """Add a task, or another kind of models that serve one."""
    _TABLE.append(task)
    TASKS.setdefault(task.name, task)


SYNONYMS = {
    "default": "feature-extraction",
    "sentence-similarity": "feature-extraction",
    "image-feature-extraction": "feature-extraction",
    "masked-lm": "fill-mask",
    "sequence-classification": "text-classification",
    "sentiment-analysis": "text-classification",
    "text-ranking": "text-classification",
    "zero-shot-classification": "text-classification",
    "ner": "token-classification",
    "image-segmentation": "semantic-segmentation",
    "causal-lm": "text-generation",
    "seq2seq-lm": "text2text-generation",
    "summarization": "text2text-generation",
    "translation": "text2text-generation",
    "audio-ctc": "automatic-speech-recognition",
    "speech2seq-lm": "automatic-speech-recognition",
    "vision2seq-lm": "image-text-to-text",
    "audio-text-to-text": "any-to-any",
    "multimodal-lm": "any-to-any",
    "inpaint": "inpainting",
    "stable-diffusion": "text-to-image",
    "stable-diffusion-xl": "text-to-image",
}
"""Names that optimum's exporters, transformers' pipelines and the Hub have for tasks too."""


def plain_task(name: str) -> str:
    """Return a task by its name here; an unknown name is returned unchanged.

    Example:
        ```python
        from optimum_neuron.sources.tasks import plain_task

        assert plain_task("text2text-generation-with-past") == plain_task("summarization") == "text2text-generation"
        ```
    """
    name = name.removesuffix("-with-past")
    return SYNONYMS.get(name, name)


def plain_pipeline(name: str) -> str:
    """Return the task of the models that a pipeline runs; an unknown name is returned unchanged."""
    rows = (task.name for task in _TABLE if name in (task.pipeline, *task.more_pipelines))
    return next(rows, plain_task(name))


def find_task(name: str, model_type: str) -> Task:
    """Return the row of a task for an architecture; the first one for code that comes with a checkpoint."""
    rows = kinds_of_task(name)
    return next((task for task in rows if model_type in _architectures(task)), rows[0])


def architectures_of(name: str) -> dict[str, tuple[str, ...]]:
    """Classes of transformers that serve a task, by model type."""
    classes: dict[str, tuple[str, ...]] = {}
    for task in kinds_of_task(name):
        classes |= _architectures(task)
    return classes


@functools.cache
def _architectures(task: Task) -> dict[str, tuple[str, ...]]:
    from transformers.models.auto import modeling_auto

    if not task.mapping:
        return {}
    table, apart = getattr(modeling_auto, task.mapping), getattr(modeling_auto, task.apart, {})
    served = {key: value for key, value in table.items() if key not in apart}
    return {key: (value,) if isinstance(value, str) else tuple(value) for key, value in served.items()}


def tasks_of(model_type: str) -> list[str]:
    """Tasks that transformers has a class for."""
    return [name for name in TASKS if model_type in architectures_of(name)]


def task_of(architecture: str) -> str | None:
    """The task of a transformers class, or of a class in a checkpoint."""
    for name in TASKS:
        if TASKS[name].is_listed and any(architecture in names for names in architectures_of(name).values()):
            return name
    return next((task.name for task in _TABLE if task.suffixes and architecture.endswith(task.suffixes)), None)
