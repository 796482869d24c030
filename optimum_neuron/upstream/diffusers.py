"""Private names of diffusers.

from optimum_neuron.upstream.diffusers import get_task_class
"""

from __future__ import annotations

from typing import Any

from .contract import Name, import_name

NAMES = (
    Name(
        target="diffusers.pipelines.auto_pipeline._get_task_class",
        why="The class of a task and a checkpoint is the one that diffusers chooses.",
        parameters=("mapping", "pipeline_class_name", "throw_error_if_not_exist"),
    ),
)
ROWS = NAMES


def __getattr__(name: str) -> Any:
    return import_name(__name__, NAMES, name)
