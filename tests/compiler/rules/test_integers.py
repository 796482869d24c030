"""Powers and right shifts depend on the width of the integer."""

import pytest
import torch

from optimum_neuron.core import Verdict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_power_is_native(ruling, dtype):
    assert ruling("aten.pow", lambda x: x**2, torch.ones(4, dtype=dtype)).verdict is Verdict.NATIVE


def test_power_in_int64_is_refused(ruling):
    found = ruling("aten.pow", lambda x: x**2, torch.ones(4, dtype=torch.int64))
    assert found.code == "NCC_EVRF062"
    assert "--implicit-integer-downcast=pow" in found.remedy


def test_power_of_int64_with_a_real_exponent_is_floating_point(ruling):
    assert ruling("aten.pow", lambda x: x**0.5, torch.ones(4, dtype=torch.int64)).verdict is Verdict.NATIVE


@pytest.mark.parametrize("shift", [torch.bitwise_right_shift, lambda x, by: x >> by], ids=["function", "operator"])
def test_shift_of_32_bits_is_native(check, shift):
    report = check(shift, torch.tensor([16], dtype=torch.int32), torch.tensor([1], dtype=torch.int32))
    assert [r.reason for r in report.rulings] == ["maps to ShiftRightArithmetic"]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64])
@pytest.mark.parametrize("shift", [torch.bitwise_right_shift, lambda x, by: x >> by], ids=["function", "operator"])
def test_shift_of_another_width_is_refused(check, shift, dtype):
    (refused,) = check(shift, torch.tensor([16], dtype=dtype), torch.tensor([1], dtype=dtype)).refused
    assert refused.code == "NCC_EVRF022"
    assert str(dtype).removeprefix("torch.") in refused.reason
