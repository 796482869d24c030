"""The order in which a call is judged, and dtypes without arithmetic, by target."""

import pytest
import torch

from optimum_neuron.compiler.rules import RULE
from optimum_neuron.core import Verdict


def test_an_operators_own_refusal_comes_before_its_dtypes(ruling):
    found = ruling("aten.sort", lambda x: torch.sort(x).values, torch.zeros(4, dtype=torch.float64))
    assert found.code == "NCC_EVRF001"


def test_sparse_tensors_are_refused(check):
    (refused,) = check(lambda x: torch.sparse.sum(x.to_sparse()), torch.randn(4, 4)).refused[:1]
    assert (refused.rule, refused.code) == ("layout", "NCC_EUOC002")
    assert "to_dense" in refused.remedy


def test_an_operator_that_does_nothing_is_native(ruling):
    found = ruling("aten.atleast_1d", torch.atleast_1d, torch.randn(4))
    assert (found.verdict, found.reason) == (Verdict.NATIVE, "does no work")


def test_an_unknown_operator_is_judged_by_what_it_is_made_of(ruling):
    found = ruling("aten.logsumexp", lambda x: torch.logsumexp(x, 0), torch.randn(4))
    assert (found.verdict, found.rule) == (Verdict.DECOMPOSED, RULE)
    assert "aten.exp.default" in found.reason


def test_a_refusal_inside_a_decomposition_names_the_inner_operator(ruling):
    found = ruling("aten.quantile", lambda x: torch.quantile(x, 0.5), torch.randn(4))
    assert (found.verdict, found.code) == (Verdict.UNSUPPORTED, "NCC_EVRF001")
    assert found.reason.startswith("it is made of aten.sort.default")


@pytest.fixture
def custom_operator():
    with torch.library._scoped_library("rules_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")
        yield lambda x: torch.ops.rules_test.twice(x)


def test_an_operator_that_nobody_knows_is_refused(ruling, custom_operator):
    found = ruling("rules_test.twice", custom_operator, torch.randn(4))
    assert (found.verdict, found.code) == (Verdict.UNSUPPORTED, "NCC_EUOC002")
    assert "no rule knows this operator" in found.reason


def test_every_refusal_has_code_source_and_remedy(check):
    def many(x):
        i = x.to(torch.int64)
        return torch.sort(x).values, torch.topk(i, 2), i @ i, i**2, x.double(), torch.digamma(x)

    refused = check(many, torch.ones(4, 4)).refused
    assert len(refused) == 6 and all(r.code and r.source and r.remedy and r.source_line for r in refused)


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
    assert refused.code == code and str(dtype).removeprefix("torch.") in refused.reason
    assert refused.remedy


@pytest.mark.parametrize(
    ("target", "codes"), [("inf2", ["NCC_EVRF051"]), ("trn1", ["NCC_EVRF051"]), ("trn2", ["NCC_EVRF051"]), ("trn3", [])]
)
def test_float8_e4m3fn_needs_trn3(check, target, codes):
    refused = check(doubled, torch.zeros(4, dtype=torch.float8_e4m3fn), target=target).refused
    assert [r.code for r in refused] == codes


def test_a_cast_to_float64_is_refused_where_it_happens(check):
    (refused, product, back) = check(lambda x: (x.double() * 2).float(), torch.zeros(4)).refused
    assert refused.op == "aten.to.dtype" and ".float()" in refused.remedy
    assert (product.op, back.op) == ("aten.mul.Tensor", "aten.to.dtype")
