"""Operators that Inductor's decompositions leave are judged like the operators they stand for."""

import torch
import torch._inductor.inductor_prims  # registers the operators

from optimum_neuron.compiler.rules.base import find_rule
from optimum_neuron.core import Verdict


def test_a_conversion_is_native_and_to_float64_refused(check_traced):
    convert = torch.ops.prims.convert_element_type.default
    (ruling,) = check_traced(lambda x: convert(x, torch.bfloat16), torch.zeros(4)).rulings
    assert ruling.verdict is Verdict.NATIVE
    assert check_traced(lambda x: convert(x, torch.float64), torch.zeros(4)).rulings[0].code == "NCC_ESPP004"


def test_seeds_are_bookkeeping_although_they_are_int64(check_traced):
    report = check_traced(lambda: torch.ops.prims.inductor_seeds(2, torch.device("cpu")))
    assert report.rulings[0].verdict is Verdict.NATIVE


def test_a_prim_without_a_rule_has_none():
    assert find_rule("prims.svd.default") is None
