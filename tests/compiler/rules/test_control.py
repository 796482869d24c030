"""Control flow must be static; bookkeeping is free; prims, lists and collectives are judged like other operators."""

import pytest
import torch
import torch._inductor.inductor_prims
import torch.distributed._functional_collectives  # both register operators

from optimum_neuron.base.core import Verdict
from optimum_neuron.compiler.rules import check_graph, find_rule
from optimum_neuron.hardware import TARGETS
from tests.compiler.rules.conftest import check_traced
from tests.programs import Calls


def test_condition_at_run_time_is_refused(check):
    def run(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    report = check(run, torch.randn(4))
    (error,) = report.refused
    assert (error.op, error.code) == ("higher_order.cond", "NCC_EUOC002")
    assert "torch.where" in error.remedy
    assert {"aten.sub.Tensor", "aten.add.Tensor"} <= {r.op for r in report.rulings}  # both branches are judged


class SwitchesGrad(Calls):
    """Calls a function without gradients."""

    def forward(self, x):
        with torch.no_grad():
            y = self.function(x)
        return y * 2


def test_graphs_inside_graph_are_judged():
    module, inputs = SwitchesGrad(lambda x: torch.sort(x).values), (torch.randn(4, requires_grad=True),)
    exported_program = torch.export.export(module, inputs, strict=False)
    report = check_graph(exported_program, TARGETS["inf2"])
    assert "higher_order.wrap_with_set_grad_enabled" in {r.op for r in report.rulings}
    assert [r.op for r in report.refused] == ["aten.sort.default"]


def all_reduce(x):
    ops = torch.ops._c10d_functional
    return ops.wait_tensor(ops.all_reduce(x, "sum", "group"))


TRACED = {
    "collective": (all_reduce, ["maps to Allreduce", "does no work"]),
    "prim": (lambda x: torch.ops.prims.convert_element_type.default(x, x.dtype), ["maps to ConvertElementType"]),
    "list": (lambda x: torch._foreach_add([x], 1.0), ["maps to Add"]),
}


@pytest.mark.parametrize(("function", "reasons"), TRACED.values(), ids=TRACED)
def test_torch_compile_operators_are_native_except_float64(function, reasons):
    rulings = check_traced(function, torch.zeros(4, dtype=torch.bfloat16)).rulings
    assert [(r.verdict, r.reason) for r in rulings if "getitem" not in r.op] == [(Verdict.NATIVE, r) for r in reasons]
    assert check_traced(function, torch.zeros(4, dtype=torch.float64)).rulings[0].code == "NCC_ESPP004"


def test_int64_seeds_are_bookkeeping():
    report = check_traced(lambda: torch.ops.prims.inductor_seeds(2, torch.device("cpu")))
    assert report.rulings[0].verdict is Verdict.NATIVE


def test_list_operator_without_rule_is_refused():
    assert check_traced(lambda x: torch._foreach_lgamma([x]), torch.ones(4)).refused[0].code == "NCC_EUOC002"
    for op in ("_c10d_functional.all_to_all_everywhere", "prims.svd.default"):
        assert find_rule(op) is None


def test_custom_operator_that_writes_is_refused_under_its_own_name(export):
    def run(x):
        copied = x.clone()
        torch.ops.rules_test.fills(copied)
        return copied

    with torch.library._scoped_library("rules_test", "FRAGMENT") as library:
        library.define("fills(Tensor(a!) x) -> ()")
        library.impl("fills", lambda x: None, "CompositeExplicitAutograd")
        functional = export(run, torch.ones(4)).run_decompositions({})
        (call,) = functional.graph.find_nodes(op="call_function", target=torch.ops.higher_order.auto_functionalized_v2)
        (error,) = check_graph(functional, TARGETS["inf2"]).refused
    assert (error.op, error.code) == (str(call.args[0]), "NCC_EUOC002") == ("rules_test.fills.default", "NCC_EUOC002")
