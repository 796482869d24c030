"""Comparisons whose bound is scaled by the largest expected value."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.tracing import assert_close, custom_allclose, neuron_allclose

EXPECTED = torch.tensor([100.0, 1.0, 0.0])


def test_rtol_is_by_largest_value_not_by_each():
    actual = EXPECTED + torch.tensor([0.0, 0.5, 0.5])
    assert not torch.allclose(actual, EXPECTED, rtol=1e-2, atol=0)
    summary = neuron_allclose(actual, EXPECTED, rtol=1e-2, atol=0)
    assert summary and summary.allclose
    assert (summary.max_abs_error, summary.max_rel_error, summary.bound) == pytest.approx((0.5, 0.005, 1.0))
    assert not neuron_allclose(actual, EXPECTED, rtol=1e-3, atol=0)
    assert custom_allclose(EXPECTED, actual, atol=0, rtol=1e-2) == (True, pytest.approx(0.005))


def test_defaults_go_by_wider_dtype():
    half = EXPECTED.bfloat16()
    assert neuron_allclose(half + 1, half) and not neuron_allclose(half + 2, half)
    assert neuron_allclose(EXPECTED + 1, half)
    assert not neuron_allclose(EXPECTED + 0.01, EXPECTED)
    three, four = torch.tensor([3]), torch.tensor([4])
    assert neuron_allclose(three, three) and not neuron_allclose(three, four)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_values_must_match(value):
    odd = torch.tensor([value, 1.0])
    assert not neuron_allclose(odd, torch.tensor([1.0, 1.0]))
    assert not neuron_allclose(torch.tensor([1.0, 1.0]), odd)
    assert neuron_allclose(odd, odd, equal_nan=True)
    assert bool(neuron_allclose(odd, odd)) == (value == float("inf"))


def test_empty_tensors_and_zeros_are_close():
    assert neuron_allclose(torch.empty(0), torch.empty(0))
    assert neuron_allclose(torch.zeros(2), torch.zeros(2)).max_rel_error == 0


def test_assert_close_names_every_differing_tensor():
    with pytest.raises(AssertionError) as error:
        assert_close({"a": EXPECTED + 9, "b": [EXPECTED.double()]}, {"a": EXPECTED, "b": [EXPECTED]})
    assert "actual.a: the largest difference is 9" in str(error.value)
    assert "actual.b.0: dtype torch.float64, expected torch.float32" in str(error.value)
    assert_close(EXPECTED.double(), EXPECTED, check_dtype=False)
    with pytest.raises(AssertionError, match=r"shape \[3\], expected \[2\]"):
        assert_close(EXPECTED, EXPECTED[:2])
    with pytest.raises(AssertionError, match="the structures differ"):
        assert_close((EXPECTED,), [EXPECTED])
    with pytest.raises(AssertionError, match="^mine$"):
        assert_close(EXPECTED + 9, EXPECTED, msg="mine")
