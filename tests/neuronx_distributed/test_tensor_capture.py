"""Captured tensors: torch's hooks are the reference."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from optimum_neuron.errors import ConfigError
from optimum_neuron.neuronx_distributed import tensor_capture


def test_modules_and_registered_tensors() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.rand(2, 4)
    expected: list[torch.Tensor] = []
    model[0].register_forward_hook(lambda module, inputs, output: expected.append(output))
    assert tensor_capture.enable_tensor_capture(model, ["0"], max_tensors=1, capture_inputs=True) is model
    model(x)
    for _ in range(2):
        tensor_capture.register_tensor("own", x)
    found = tensor_capture.get_captured_tensors_dict()
    torch.testing.assert_close(dict(found), {"0.inputs.0": x, "0.outputs": expected[0], "manual_own": x})
    tensor_capture.disable_tensor_capture(model)
    model(x)
    assert not tensor_capture.get_captured_tensors_dict()
    with pytest.raises(ConfigError):
        tensor_capture.enable_tensor_capture(model, ["5"])
