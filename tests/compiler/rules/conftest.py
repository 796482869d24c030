"""Exports small functions and checks their graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from optimum_neuron.base.core import Ruling
from optimum_neuron.compiler.rules import Report, check_graph
from optimum_neuron.hardware import TARGETS
from tests.programs import Calls


@pytest.fixture
def export() -> Callable[..., torch.export.ExportedProgram]:
    """Export a module or function with example inputs."""

    def run(function: Callable[..., Any], *inputs: Any, **options: Any) -> torch.export.ExportedProgram:
        module = function if isinstance(function, torch.nn.Module) else Calls(function)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return torch.export.export(module.eval(), inputs, strict=False, **options)

    return run


@pytest.fixture
def check(export: Callable[..., Any]) -> Callable[..., Report]:
    """Export a function and judge its graph for a target."""

    def run(function: Callable[..., Any], *inputs: Any, target: str = "inf2", **options: Any) -> Report:
        return check_graph(export(function, *inputs), TARGETS[target], **options)

    return run


def check_traced(function: Callable[..., Any], *inputs: Any) -> Report:
    """Trace a function on fake tensors and judge its graph for inf2."""
    graph = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*inputs)
    return check_graph(graph, TARGETS["inf2"])


@pytest.fixture
def ruling(check: Callable[..., Report]) -> Callable[..., Ruling]:
    """The ruling on the one call of an operator ("aten.topk") in an exported function."""

    def run(op: str, function: Callable[..., Any], *inputs: Any, **options: Any) -> Ruling:
        (only,) = [r for r in check(function, *inputs, **options).rulings if r.op.startswith(f"{op}.")]
        return only

    return run
