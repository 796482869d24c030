"""A model's configuration to its graphs, as an export would compile them, without weights and without host code.

captured = capture_model(source, batch_size=8, sequence_length=128)
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ..compiler.compile import compile_graphs
from ..compiler.ir import Program
from ..compiler.memory import MemoryNeed, memory_need
from ..configuration import CompileConfig
from ..exporters.kinds import kind_of
from ..exporters.progress import Progress
from ..exporters.request import neuron_config
from ..exporters.source import ModelSource
from ..hardware import Target


@dataclasses.dataclass(frozen=True, kw_only=True)
class CapturedModel:
    """Every entry point of a model, linked into one program."""

    program: Program
    """Graphs with their weights named."""
    config: CompileConfig
    """Shapes and arithmetic, complete."""
    target: Target
    """What it was captured for."""
    memory: MemoryNeed
    """HBM of one core."""


def capture_model(source: ModelSource, *, trust_remote_code: bool = False, **options: Any) -> CapturedModel:
    """Capture a model as an export with these options would.

    Args:
        source: where its configuration is.
        trust_remote_code: run the model's own code.
        **options: those of `main_export` that decide shapes and dtypes.

    Raises:
        CaptureError: the model's code is not static.
        ConfigError: an option is unknown, or one of another kind of model.
        ModelError: transformers cannot build it.
    """
    config, target = neuron_config(source, options, trust_remote_code=trust_remote_code)
    plan = kind_of(config.task, source.config.model_type).plan(source, config, trust_remote_code=trust_remote_code)
    with Progress(f"Estimating {source.name} for {config.target}") as progress:
        program = compile_graphs(plan.captures, target=None, on_done=progress.captured).program
    memory = memory_need(program, lnc=target.value.chip.default_lnc)
    return CapturedModel(program=program, config=config, target=target.value, memory=memory)
