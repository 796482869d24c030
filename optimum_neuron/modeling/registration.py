"""Tell transformers' pipelines that compiled models serve their tasks, so that they do not warn.

transformers looks a model's class name up in its auto classes; a configuration class of our own leads there
without touching any architecture's entry.
"""

from __future__ import annotations

from typing import Any

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto import modeling_auto

from ..exporters.tasks import kinds_of_task
from . import stock_pipelines

stock_pipelines.install()  # also where torch was told not to load devices of others


class CompiledModelConfig(PreTrainedConfig):
    """Placeholder under which compiled classes are registered; no checkpoint has it."""

    model_type = "optimum_neuron_compiled"


def register(model_class: type[Any]) -> type[Any]:
    """Register a class for the auto class of its task and kind; usable as a decorator."""
    rows = kinds_of_task(model_class.task)
    task = next((row for row in rows if row.kind == model_class.kind), rows[0])
    getattr(transformers, task.auto_class).register(CompiledModelConfig, model_class, exist_ok=True)
    # Some pipelines read the table of names instead of the auto class.
    getattr(modeling_auto, task.mapping).setdefault(model_class.__name__, model_class.__name__)
    return model_class
