"""Control flow must be static; bookkeeping is free."""

import torch
from torch import nn

from optimum_neuron.compiler.rules.report import check_graph
from optimum_neuron.hardware import resolve_target


def test_a_condition_at_run_time_is_refused(check):
    def run(x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    report = check(run, torch.randn(4))
    (refused,) = report.refused
    assert (refused.op, refused.code) == ("higher_order.cond", "NCC_EUOC002")
    assert "torch.where" in refused.remedy
    assert {"aten.sub.Tensor", "aten.add.Tensor"} <= {r.op for r in report.rulings}  # both branches are judged


class SwitchesGrad(nn.Module):
    def forward(self, x):
        with torch.no_grad():
            y = torch.sort(x).values
        return y * 2


def test_graphs_inside_a_graph_are_judged():
    exported = torch.export.export(SwitchesGrad(), (torch.randn(4, requires_grad=True),), strict=False)
    report = check_graph(exported, resolve_target("inf2", environ={}).value)
    assert "higher_order.wrap_with_set_grad_enabled" in {r.op for r in report.rulings}
    assert [r.op for r in report.refused] == ["aten.sort.default"]
