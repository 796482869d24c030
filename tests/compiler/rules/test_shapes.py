"""No size may depend on values, and no graph input may leave its size open."""

import pytest
import torch

from optimum_neuron.compiler.rules import MAKES, USES, check_graph
from optimum_neuron.hardware import TARGETS
from tests.compiler.rules.test_control import SwitchesGrad


@pytest.mark.parametrize(
    "function",
    [
        torch.nonzero,
        lambda x: torch.masked_select(x, x > 0),
        lambda x: x[x > 0],
        torch.unique,
        lambda x: torch.bincount(x.long().flatten()),
    ],
    ids=["nonzero", "masked_select", "boolean_index", "unique", "bincount"],
)
def test_data_dependent_sizes_are_refused(check, function):
    error = [r for r in check(function, torch.randn(4, 4)).refused if r.rule == MAKES]
    assert {r.code for r in error} == {"NCC_EMOD025"} and "?" in error[0].reason


def test_known_sizes_are_named_beside_unknown_ones(check):
    (error,) = check(lambda x: x.new_zeros(4, 0, 3)[x > 0], torch.randn(4)).refused[:1]
    assert error.rule == MAKES and "float32[?, 0, 3]" in error.reason
    (error,) = check(lambda x: torch.unique(x, return_inverse=True)[0], torch.randn(4)).refused[:1]
    assert "(float32[?], ? is unknown)" in error.reason


def test_reading_value_is_refused(check):
    (error,) = check(lambda x: x * x.sum().item(), torch.randn(4)).refused
    assert error.code == "NCC_EMOD025" and "torch.where" in error.remedy
    assert "?" not in error.reason  # a value has no size


def test_unknown_sizes_from_host_operators_are_refused(check):
    def run(x):
        return torch.nonzero(x) + 1

    alone = check(run, torch.randn(4, 4))
    assert [(r.op, r.rule) for r in alone.refused] == [("aten.nonzero.default", MAKES), ("aten.add.Tensor", USES)]
    summed = check(lambda x: torch.nonzero(x).sum(), torch.randn(4, 4)).refused
    assert [(r.op, r.reason) for r in summed[1:]] == [("aten.sum.default", "it works on a size that is not known (u0)")]
    hosted = check(run, torch.randn(4, 4), allow_host_ops={"aten::nonzero", "aten::add"})
    assert [r.op for r in hosted.refused] == ["aten.add.Tensor"]


def test_masks_of_static_shape_are_accepted(check):
    assert not check(lambda x: torch.where(x > 0, x, 0.0), torch.randn(4, 4)).refused


def test_dynamic_graph_input_is_refused_once_by_name(export):
    exported_program = export(lambda x: x * 2, torch.randn(4, 8), dynamic_shapes=(({0: torch.export.Dim("rows")},),))
    report = check_graph(exported_program, TARGETS["inf2"])
    makers = [r for r in report.refused if r.rule == MAKES]
    assert [r.code for r in makers] == ["NCC_EMOD025"] and makers[0].op.startswith("graph input")
    assert ", 8]" in makers[0].reason
    assert [r.op for r in report.refused if r.rule == USES] == ["aten.mul.Tensor"]


def test_open_input_is_not_named_again_by_graphs_inside():
    inputs = (torch.randn(4, 8, requires_grad=True),)
    shapes = ({0: torch.export.Dim("rows")},)
    exported_program = torch.export.export(SwitchesGrad(torch.neg), inputs, dynamic_shapes=shapes, strict=False)
    report = check_graph(exported_program, TARGETS["inf2"])
    assert {"aten.neg.default", "aten.mul.Tensor"} <= {r.op for r in report.refused}
    assert [r.op for r in report.refused if r.rule == MAKES] == ["graph input 'x'"]
