"""Lists of tensors are judged as their operators of one tensor."""

import torch

from optimum_neuron.compiler.rules.report import check_graph
from optimum_neuron.core import Verdict
from optimum_neuron.hardware import resolve_target

INF2 = resolve_target("inf2", environ={}).value


def traced(function, *inputs):
    return torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*inputs)


def test_a_list_is_added_on_the_device():
    report = check_graph(traced(lambda x: torch._foreach_add([x, x], 1.0), torch.zeros(4)), INF2)
    assert [r.verdict for r in report.rulings if "_foreach_add" in r.op] == [Verdict.NATIVE]


def test_a_list_of_float64_is_refused_as_one_tensor_is():
    report = check_graph(traced(lambda x: torch._foreach_mul([x], 2.0), torch.zeros(4, dtype=torch.float64)), INF2)
    assert report.refused[0].code == "NCC_ESPP004"


def test_a_list_operator_without_a_rule_is_refused():
    report = check_graph(traced(lambda x: torch._foreach_lgamma([x]), torch.ones(4)), INF2)
    assert report.refused[0].code == "NCC_EUOC002"
