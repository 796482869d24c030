"""`ModelBuilder`: traces of a module with inputs of several shapes, compiled to one model.

model = ModelBuilder(module).trace(args=x, tag="short").trace(args=y, tag="long").compile()
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..errors import ConfigError
from .compiles import LayoutTransformerArtifacts, compile, generate_key
from .nxd_model import NxDModel
from .traces import TraceArtifacts, trace


class ModelBuilder:
    """Collects traces of a model.

    Args:
        model: a module or a function, built as one of its ranks.
        weights_to_skip_layout_optimization: weights whose layout shall stay, with "->" in place of dots.
    """

    def __init__(
        self, model: Callable[..., Any], weights_to_skip_layout_optimization: Collection[str] | None = None
    ) -> None:
        self.model = model
        self.weights_to_skip_layout_optimization = weights_to_skip_layout_optimization
        self.trace_artifacts_collection: dict[str, TraceArtifacts] = {}
        self.world_size = dist.get_world_size() if dist.is_initialized() else 1

    def trace(
        self,
        args: torch.Tensor | tuple[torch.Tensor, ...] | None = None,
        kwargs: Mapping[str, torch.Tensor] | None = None,
        tag: str | None = None,
        spmd: bool = True,
    ) -> ModelBuilder:
        """Trace the model, and return the builder; see `traces.trace`.

        Args:
            args: example inputs, by position.
            kwargs: example inputs, by name.
            tag: name of the trace; None: one is made.
            spmd: one program for all ranks.
        """
        skipped = self.weights_to_skip_layout_optimization
        traced = trace(self.model, args, kwargs, spmd, weights_to_skip_layout_optimization=skipped)
        self.trace_artifacts_collection[generate_key(traced.hlo, tag)] = traced
        return self

    def compile(
        self,
        priority_model_key: str | None = None,
        compiler_workdir: str | Path | None = None,
        compiler_args: str | Mapping[str, str] | None = None,
        max_workers: int | None = None,
    ) -> NxDModel:
        """Compile all traces, and return the model.

        Args:
            priority_model_key: the trace that may choose the layout of weights; there is one layout.
            compiler_workdir: folder of the files; None: /tmp/nxd_models.
            compiler_args: flags of neuronx-cc, for all traces or by tag.
            max_workers: number of compiles at a time; they run one after the other.

        Raises:
            ConfigError: there are no traces, or tags that are not known or have no flags.
        """
        traces = self.trace_artifacts_collection
        if not traces:
            raise ConfigError("There are no traces to compile.", hint="Call trace() first.")
        if priority_model_key and priority_model_key not in traces:
            message = f"priority_model_key is {priority_model_key!r}, and the traces are {', '.join(traces)}."
            raise ConfigError(message, hint="Name one of them.", option="priority_model_key")
        flags = compiler_args if isinstance(compiler_args, Mapping) else dict.fromkeys(traces, compiler_args)
        if missing := [tag for tag in traces if tag not in flags]:
            message = f"compiler_args has no flags for {', '.join(missing)}."
            raise ConfigError(message, hint="Pass flags for each trace, or one text for all.", missing=missing)
        layouts = LayoutTransformerArtifacts() if priority_model_key else None
        model = NxDModel(self.world_size, layout_transformer=layouts)
        for tag, traced in traces.items():
            model.add(tag, traced, compile(traced.hlo, traced.metaneff, compiler_workdir, flags[tag], tag))
        return model
