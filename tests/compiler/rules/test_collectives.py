"""Collectives of compiled graphs: accepted by name, refused by dtype as everything else."""

import torch
import torch.distributed._functional_collectives  # registers the operators

from optimum_neuron.compiler.rules.base import find_rule
from optimum_neuron.compiler.rules.report import check_graph
from optimum_neuron.core import Verdict
from optimum_neuron.hardware import resolve_target

INF2 = resolve_target("inf2", environ={}).value
ops = torch.ops._c10d_functional


def rulings(dtype):
    def reduce(x):
        return ops.wait_tensor(ops.all_reduce(x, "sum", "group"))

    graph = torch.fx.experimental.proxy_tensor.make_fx(reduce, tracing_mode="fake")(torch.zeros(4, dtype=dtype))
    return check_graph(graph, INF2).rulings


def test_a_reduction_over_cores_is_native_and_waiting_is_no_work():
    reduce, wait = rulings(torch.bfloat16)
    assert (reduce.verdict, reduce.reason) == (Verdict.NATIVE, "maps to Allreduce")
    assert wait.reason == "does no work"


def test_a_reduction_of_float64_is_refused():
    assert rulings(torch.float64)[0].code == "NCC_ESPP004"


def test_other_collectives_have_no_rule():
    assert find_rule("_c10d_functional.all_to_all_everywhere") is None
