"""Mixed dtypes that torch rejects on the first call are rejected at capture."""

import pytest
import torch
from torch import nn

from optimum_neuron.base.core import TensorSpec
from optimum_neuron.compiler import capture
from optimum_neuron.errors import CaptureError

MODULES = {
    "group": lambda: nn.GroupNorm(2, 4),
    "layer": lambda: nn.LayerNorm(6),
    "batch": lambda: nn.BatchNorm1d(4),
    "instance": lambda: nn.InstanceNorm1d(4, affine=True),
    "rms": lambda: nn.RMSNorm(6),
    "linear": lambda: nn.Linear(6, 6),
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("of_module", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("of_input", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_capture_rejects_what_torch_rejects(make, of_input, of_module):
    module, x = make().eval().to(of_module), torch.rand(2, 4, 6).to(of_input)
    inputs = {"x": TensorSpec(shape=(2, 4, 6), dtype=str(of_input).removeprefix("torch."))}
    try:
        module(x)
    except RuntimeError:
        with pytest.raises(CaptureError) as excinfo:
            capture(module, name="forward", inputs=inputs)
        (problem,) = excinfo.value.details["problems"]
        assert "float32" in problem and "bfloat16" in problem
    else:
        assert capture(module, name="forward", inputs=inputs).exported
