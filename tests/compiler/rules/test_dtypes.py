"""Dtypes without arithmetic, by target."""

import pytest
import torch


def doubled(x):
    return torch.cat([x, x])


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.float8_e5m2],
    ids=str,
)
def test_supported_dtypes_pass(check, dtype):
    assert not check(doubled, torch.zeros(4, dtype=dtype)).refused


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        (torch.complex64, "NCC_EVRF004"),
        (torch.complex128, "NCC_EVRF004"),
        (torch.float8_e4m3fnuz, "NCC_EVRF005"),
        (torch.float8_e5m2fnuz, "NCC_EVRF005"),
        (torch.float64, "NCC_ESPP004"),
        (torch.float8_e8m0fnu, "NCC_ESPP047"),
    ],
    ids=str,
)
def test_unsupported_dtypes_are_refused(check, dtype, code):
    (refused,) = check(doubled, torch.zeros(4, dtype=dtype)).refused
    assert refused.code == code
    assert str(dtype).removeprefix("torch.") in refused.reason
    assert refused.remedy


@pytest.mark.parametrize(
    ("target", "codes"), [("inf2", ["NCC_EVRF051"]), ("trn1", ["NCC_EVRF051"]), ("trn2", ["NCC_EVRF051"]), ("trn3", [])]
)
def test_float8_e4m3fn_needs_trn3(check, target, codes):
    refused = check(doubled, torch.zeros(4, dtype=torch.float8_e4m3fn), target=target).refused
    assert [r.code for r in refused] == codes


def test_a_cast_to_float64_is_refused_where_it_happens(check):
    (refused, product, back) = check(lambda x: (x.double() * 2).float(), torch.zeros(4)).refused
    assert refused.op == "aten.to.dtype"
    assert ".float()" in refused.remedy
    assert (product.op, back.op) == ("aten.mul.Tensor", "aten.to.dtype")
