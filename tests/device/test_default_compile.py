"""`torch.compile` without a backend compiles device tensors with the backend "neuron"."""

from __future__ import annotations

import logging

import pytest
import torch

from tests.device.conftest import needs_compiler

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_device_graph_is_compiled_and_unsupported_operators_run_on_host():
    function = torch.compile(lambda x: x.sort().values * 2)
    x = torch.tensor([2.0, 1.0], device="neuron", requires_grad=True)
    result = function(x)
    result[0].backward()
    assert result.tolist() == [2, 4] and x.grad.tolist() == [0, 2]
    assert torch.neuron.compile_report().graphs[0].host_ops == ("aten.sort",)


def test_graph_with_device_factories_is_compiled():
    assert torch.compile(lambda: torch.ones(2, device="neuron") * 2)().tolist() == [2, 2]


def test_options_of_inductor_are_named(caplog):
    caplog.set_level(logging.WARNING)
    torch.compile(lambda x: x * 2, options={"max_autotune": True})(torch.ones(2, device="neuron"))
    assert "max_autotune" in caplog.text


@needs_compiler
def test_host_tensors_use_inductor():
    compiled_fn = torch.compile(lambda x: x * 2)
    assert compiled_fn(torch.ones(2)).tolist() == [2, 2] and not torch.neuron.compile_report().graphs
