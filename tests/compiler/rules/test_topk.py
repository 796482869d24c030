"""Top-k is for floating point."""

import pytest
import torch

from optimum_neuron.core import Verdict


def top(x):
    return torch.topk(x, 2).values


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_floating_point_is_native(ruling, dtype):
    found = ruling("aten.topk", top, torch.ones(4, 8, dtype=dtype))
    assert found.verdict is Verdict.NATIVE
    assert found.reason == "maps to AwsNeuronTopK"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_integers_are_refused_until_cast(ruling, check, dtype):
    tensor = torch.ones(4, 8, dtype=dtype)
    found = ruling("aten.topk", top, tensor)
    assert (found.verdict, found.code) == (Verdict.UNSUPPORTED, "NCC_EVRF013")
    assert "float32" in found.remedy
    assert not check(lambda x: top(x.float()), tensor).refused
