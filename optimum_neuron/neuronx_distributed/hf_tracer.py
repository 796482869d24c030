"""The FX tracer that libraries import from `transformers.utils.fx`, which transformers 5 no longer has.

from optimum_neuron.neuronx_distributed.hf_tracer import HFTracer
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch


class HFTracer(torch.fx.Tracer):
    """`torch.fx.Tracer` with the arguments of transformers' tracer; shapes of parameters are constants."""

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
    ) -> None:
        """Make a tracer.

        Args:
            autowrap_modules: modules whose functions are nodes of the graph.
            autowrap_functions: functions that are nodes of the graph.
        """
        super().__init__(autowrap_modules, autowrap_functions, param_shapes_constant=True)

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Return what is traced, without the decorators of transformers, and its arguments."""
        return super().create_args_for_root(inspect.unwrap(root_fn), is_module, concrete_args)
