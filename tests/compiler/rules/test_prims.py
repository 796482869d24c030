"""What Inductor's decompositions leave is judged like the operators it stands for."""

import torch
import torch._inductor.inductor_prims  # registers the operators

from optimum_neuron.compiler.rules.base import find_rule
from optimum_neuron.compiler.rules.report import check_graph
from optimum_neuron.core import Verdict
from optimum_neuron.hardware import resolve_target

INF2 = resolve_target("inf2", environ={}).value


def rulings(function, *inputs):
    graph = torch.fx.experimental.proxy_tensor.make_fx(function, tracing_mode="fake")(*inputs)
    return check_graph(graph, INF2).rulings


def test_a_conversion_is_native_and_to_float64_refused():
    convert = torch.ops.prims.convert_element_type.default
    assert [r.verdict for r in rulings(lambda x: convert(x, torch.bfloat16), torch.zeros(4))] == [Verdict.NATIVE]
    assert rulings(lambda x: convert(x, torch.float64), torch.zeros(4))[0].code == "NCC_ESPP004"


def test_seeds_are_bookkeeping_although_they_are_int64():
    assert rulings(lambda: torch.ops.prims.inductor_seeds(2, torch.device("cpu")))[0].verdict is Verdict.NATIVE


def test_a_prim_without_a_rule_has_none():
    assert find_rule("prims.svd.default") is None
