"""Lists of tensors are judged as their operators of one tensor."""

import torch

from optimum_neuron.core import Verdict


def test_a_list_is_judged_as_one_tensor_is(check_traced):
    report = check_traced(lambda x: torch._foreach_add([x, x], 1.0), torch.zeros(4))
    assert [r.verdict for r in report.rulings if "_foreach_add" in r.op] == [Verdict.NATIVE]
    report = check_traced(lambda x: torch._foreach_mul([x], 2.0), torch.zeros(4, dtype=torch.float64))
    assert report.refused[0].code == "NCC_ESPP004"


def test_a_list_operator_without_a_rule_is_refused(check_traced):
    assert check_traced(lambda x: torch._foreach_lgamma([x]), torch.ones(4)).refused[0].code == "NCC_EUOC002"
