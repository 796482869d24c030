"""`pipeline` under the rules of Optimum Neuron: with its default models, and with its classes of models."""

from __future__ import annotations

import functools
from typing import Any

from optimum.neuron import _classes
from optimum.neuron._classes import under_rules

import optimum_neuron
from optimum_neuron.modeling import NeuronModel
from optimum_neuron.options.peer_attributes import upstream_rules
from optimum_neuron.pipelines import PIPELINES, pipeline_class

DEFAULT_MODELS = {
    "audio-classification": "facebook/wav2vec2-large-960h-lv60-self",
    "automatic-speech-recognition": "facebook/wav2vec2-large-960h-lv60-self",
    "feature-extraction": "distilbert-base-cased",
    "fill-mask": "bert-base-cased",
    "image-classification": "microsoft/beit-base-patch16-224-pt22k-ft22k",
    "image-segmentation": "apple/deeplabv3-mobilevit-small",
    "object-detection": "apple/deeplabv3-mobilevit-small",
    "question-answering": "distilbert-base-cased-distilled-squad",
    "text-classification": "distilbert-base-uncased-finetuned-sst-2-english",
    "text-generation": "Qwen/Qwen2.5-0.5B-Instruct",
    "token-classification": "dbmdz/bert-large-cased-finetuned-conll03-english",
}
"""Models of Optimum Neuron for tasks without a model."""


def pipeline(task: str, model: Any = None, tokenizer: Any = None, **options: Any) -> Any:
    """Build a transformers pipeline on a compiled model.

    Args:
        task: a pipeline of transformers.
        model: exported folder, checkpoint with `export=True`, or a loaded model; None: Optimum Neuron's default model,
            which is exported.
        tokenizer: tokenizer or its path; None takes the model's.
        **options: as of `optimum_neuron.pipeline`.

    Raises:
        NotExportedError: it is a checkpoint, and `export` is not True.
        NeuronError: as `optimum_neuron.pipeline`.
    """
    if model is None and task in DEFAULT_MODELS:
        model = DEFAULT_MODELS[task]
        options.setdefault("export", True)
    with upstream_rules():
        pipe = optimum_neuron.pipeline(task, model, tokenizer, **options)
    if isinstance(pipe.model, NeuronModel):
        under_rules(pipe.model)
    return pipe


@functools.cache
def _supported_tasks() -> dict[str, dict[str, Any]]:
    """Class, models, default model, and kind of input of each pipeline, in the form of transformers' table."""
    return {
        name: {
            "impl": pipeline_class(name),
            "class": (getattr(_classes, task.model_class),),
            "default": DEFAULT_MODELS.get(name),
            "type": _kind_of(name),
        }
        for name, task in PIPELINES.items()
    }


def _kind_of(name: str) -> str:
    from transformers.pipelines import SUPPORTED_TASKS

    return SUPPORTED_TASKS[name]["type"] if name in SUPPORTED_TASKS else "text"


def __getattr__(name: str) -> Any:
    if name == "NEURONX_SUPPORTED_TASKS":  # imports transformers' pipelines
        return _supported_tasks()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
