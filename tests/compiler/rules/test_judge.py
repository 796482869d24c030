"""The order in which a call is judged, and dtypes without arithmetic, by target."""

import pytest
import torch

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler.rules import RULE, check_graph
from optimum_neuron.compiler.rules.judge import _FLOAT64_REMEDY, UNKNOWN
from optimum_neuron.hardware import TARGETS


def test_operator_rule_precedes_dtype_rule(ruling):
    result = ruling("aten.sort", lambda x: torch.sort(x).values, torch.zeros(4, dtype=torch.float64))
    assert result.code == "NCC_EVRF001"


def test_sparse_tensors_are_refused(check):
    (error,) = check(lambda x: torch.sparse.sum(x.to_sparse()), torch.randn(4, 4)).refused[:1]
    assert (error.rule, error.code) == ("layout", "NCC_EUOC002")
    assert "to_dense" in error.remedy


def test_no_op_is_native(ruling):
    result = ruling("aten.atleast_1d", torch.atleast_1d, torch.randn(4))
    assert (result.verdict, result.reason) == (Verdict.NATIVE, "does no work")


def test_unknown_operator_is_judged_by_its_decomposition(ruling):
    result = ruling("aten.logsumexp", lambda x: torch.logsumexp(x, 0), torch.randn(4))
    assert (result.verdict, result.rule) == (Verdict.DECOMPOSED, RULE)
    assert "aten.exp.default" in result.reason


def test_error_inside_decomposition_names_inner_operator(ruling):
    result = ruling("aten.quantile", lambda x: torch.quantile(x, 0.5), torch.randn(4))
    assert (result.verdict, result.code) == (Verdict.UNSUPPORTED, "NCC_EVRF001")
    assert result.reason.startswith("it is made of aten.sort.default")


@pytest.fixture
def custom_operator():
    with torch.library._scoped_library("rules_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")
        yield lambda x: torch.ops.rules_test.twice(x)


def test_unknown_operator_is_refused(ruling, custom_operator):
    result = ruling("rules_test.twice", custom_operator, torch.randn(4))
    assert (result.verdict, result.code) == (Verdict.UNSUPPORTED, "NCC_EUOC002")
    assert "no rule knows this operator" in result.reason


def test_unknown_operator_without_results_is_refused(ruling):
    with torch.library._scoped_library("rules_test", "FRAGMENT") as library:
        library.define("fills(Tensor(a!) x) -> ()")
        library.impl("fills", lambda x: None, "CompositeExplicitAutograd")
        result = ruling("rules_test.fills", lambda x: (torch.ops.rules_test.fills(x), x + 1)[1], torch.ones(4))
    assert (result.verdict, result.rule) == (Verdict.UNSUPPORTED, UNKNOWN)


def test_arithmetic_on_sizes_is_no_work_of_the_core(export):
    shapes = (({0: torch.export.Dim("rows")},),)
    program = export(lambda x: x.new_zeros(x.shape[0] * 2), torch.ones(4, 2), dynamic_shapes=shapes)
    (ruling,) = [one for one in check_graph(program, TARGETS["inf2"]).rulings if one.op == "python.mul"]
    assert (ruling.verdict, ruling.reason) == (Verdict.NATIVE, "computes on sizes while compiling")


def test_every_error_has_code_source_and_remedy(check):
    def many(x):
        i = x.to(torch.int64)
        return torch.sort(x).values, torch.topk(i, 2), i @ i, i**2, x.double(), torch.digamma(x)

    result = check(many, torch.ones(4, 4)).refused
    assert len(result) == 6 and all(r.code and r.source and r.remedy and r.source_line for r in result)


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
    (error,) = check(doubled, torch.zeros(4, dtype=dtype)).refused
    assert error.code == code and str(dtype).removeprefix("torch.") in error.reason
    assert error.remedy and (error.remedy == _FLOAT64_REMEDY) is (dtype == torch.float64)


@pytest.mark.parametrize(
    ("target", "codes"), [("inf2", ["NCC_EVRF051"]), ("trn1", ["NCC_EVRF051"]), ("trn2", ["NCC_EVRF051"]), ("trn3", [])]
)
def test_float8_e4m3fn_needs_trn3(check, target, codes):
    result = check(doubled, torch.zeros(4, dtype=torch.float8_e4m3fn), target=target).refused
    assert [r.code for r in result] == codes


def test_cast_to_float64_is_refused_at_the_cast(check):
    (error, product, back) = check(lambda x: (x.double() * 2).float(), torch.zeros(4)).refused
    assert error.op == "aten.to.dtype" and ".float()" in error.remedy
    assert (product.op, back.op) == ("aten.mul.Tensor", "aten.to.dtype")
