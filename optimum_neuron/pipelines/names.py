"""Names of pipelines: the task of each one's models, and why the others of transformers cannot be built.

It imports nothing heavy, so pages and errors can list them.
"""

from __future__ import annotations

from ..errors import ModelError, invalid_choice
from ..sources import TASKS, Task, other_tasks

ALIASES = {
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "text-to-speech": "text-to-audio",
    "vqa": "visual-question-answering",
}
"""Other names that transformers has for pipelines."""

PIPELINES: dict[str, Task] = {
    name: task for task in TASKS.values() if task.pipeline for name in (task.pipeline, *task.more_pipelines)
}
"""Name of a pipeline to the task of its models."""

TEXT_TO_TEXT = {
    "text2text-generation": "generated_text",
    "summarization": "summary_text",
    "translation": "translation_text",
}
"""Pipelines of models that read a text and write one, to the key of their results."""

_TRACE = "Compile the model with torch_neuronx.trace, which takes any example inputs."
_CHAT = 'Use "image-text-to-text" with a vision-language model.'

NOT_SERVED = {
    "text-to-audio": ("models that generate audio cannot be exported", _TRACE),
    "table-question-answering": ("models that read tables (TAPAS) cannot be exported", _TRACE),
    "document-question-answering": ("models that read the layout of a page (LayoutLM) cannot be exported", _TRACE),
    "zero-shot-audio-classification": ("models that compare audio with text (CLAP) cannot be exported", _TRACE),
    "zero-shot-object-detection": ("models that find objects by text (OWL-ViT) cannot be exported", _TRACE),
    "video-classification": ("models that read videos (VideoMAE) cannot be exported", _TRACE),
    "mask-generation": ("it calls the parts of a SAM model one by one, and an export has one graph", _TRACE),
    "keypoint-matching": ("models that compare two images (SuperGlue) cannot be exported", _TRACE),
    "decision": ("it was not compared with transformers", "Pass the loaded model to transformers.pipeline."),
    "visual-question-answering": ("transformers 5 removed it", _CHAT),
    "image-to-text": ("transformers 5 removed it", _CHAT),
    "image-to-image": ("transformers 5 removed it", "Use NeuronDiffusionPipeline."),
}
"""Pipelines of transformers that cannot be built, each with the reason and a remedy."""


def plain_name(name: str) -> str:
    """Return the pipeline that is meant by a name with languages in it, such as "translation_en_to_de"."""
    return "translation" if name.startswith("translation_") and "_to_" in name else name


def task_of_pipeline(name: str) -> Task:
    """Return the task of a pipeline's models."""
    name = plain_name(name)
    if name in PIPELINES:
        return PIPELINES[name]
    if name in NOT_SERVED:
        reason, hint = NOT_SERVED[name]
        message = f"The pipeline {name!r} is not supported: {reason}."
        raise ModelError(message, hint=hint, task=name, reason=reason)
    if name in other_tasks():
        message = f"The task {name!r} has no pipeline, and its models cannot be exported."
        raise ModelError(message, hint=f"{_TRACE} Pipelines are {', '.join(PIPELINES)}.", task=name)
    raise invalid_choice("task", name, PIPELINES, error=ModelError)
