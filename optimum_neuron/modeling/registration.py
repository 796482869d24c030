"""Register compiled models with transformers' auto classes, so that pipelines do not warn about them.

A placeholder configuration class does this without changing any architecture's entry.
"""

from __future__ import annotations

from typing import Any

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto

from ..sources import kinds_of_task
from . import stock_pipelines

stock_pipelines.install()  # also if torch does not load out-of-tree devices


class CompiledModelConfig(PreTrainedConfig):
    """Placeholder to register compiled classes under; no checkpoint uses it."""

    model_type = "optimum_neuron_compiled"


def register(model_class: type[Any]) -> type[Any]:
    """Register a class for the auto class of its task and kind; usable as a decorator."""
    rows = kinds_of_task(model_class.task)
    task = next((row for row in rows if row.kind == model_class.kind), rows[0])
    getattr(transformers, task.auto_class).register(CompiledModelConfig, model_class, exist_ok=True)
    # Some pipelines read the table of names, not the auto class.
    getattr(modeling_auto, task.mapping).setdefault(model_class.__name__, model_class.__name__)
    return model_class
