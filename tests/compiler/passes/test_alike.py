"""Bodies divided into what all cores compute alike and what differs; tensors written in place are not divided."""

import torch
from torch.nn import functional as F

from optimum_neuron.compiler.passes.alike import divide
from tests.programs import operators, spec, subprogram_of

X, WEIGHT = spec(2, 4), spec(4, 4)


def divided(function, *specs, own, num_outputs=1):
    """The operators of each part, and the part's argument and result counts."""
    subprogram = subprogram_of(function, *specs, num_outputs=num_outputs)
    pieces = divide(subprogram, own)
    return [(operators(piece.subprogram.body), len(piece.arguments), len(piece.results)) for piece in pieces]


def test_norm_before_a_divided_product_is_alike():
    once, each = divided(lambda x, weight: F.linear(torch.tanh(x) * 2, weight), X, WEIGHT, own=[1])
    assert once == (["aten.tanh.default", "aten.mul.Tensor"], 1, 1)
    assert each == (["aten.linear.default"], 2, 1)


def test_views_and_constants_are_computed_again():
    def function(x, weight):
        return F.linear(torch.tanh(x).view(4, 2).transpose(0, 1), weight) + torch.arange(4)

    once, each = divided(function, X, WEIGHT, own=[1])
    assert once[0] == ["aten.tanh.default"] and once[2] == 1
    assert sorted(each[0]) == [f"aten.{name}" for name in ("add.Tensor", "arange.default", "linear.default")] + [
        "aten.transpose.int",
        "aten.view.default",
    ]


def test_views_that_both_parts_need_are_in_both():
    once, each = divided(lambda x, w: F.linear((y := torch.tanh(x).unsqueeze(0)), w) + y.exp(), X, WEIGHT, own=[1])
    assert once == (["aten.tanh.default", "aten.unsqueeze.default", "aten.exp.default"], 1, 2)
    assert each == (["aten.unsqueeze.default", "aten.linear.default", "aten.add.Tensor"], 3, 1)

    def returns_the_view(x, weight):
        return (view := torch.tanh(x).unsqueeze(0)), F.linear(view, weight)

    once, each = divided(returns_the_view, X, WEIGHT, own=[1], num_outputs=2)
    assert once == (["aten.tanh.default", "aten.unsqueeze.default"], 1, 2)
    assert each == (["aten.unsqueeze.default", "aten.linear.default"], 2, 1)


def test_masks_are_computed_again():
    """Host code finds them beside the products that they choose."""
    once, each = divided(lambda x, w: F.linear(torch.where((y := torch.tanh(x)) > 0, y, 0 * w), w), X, X, own=[1])
    assert "aten.gt.Scalar" in each[0] and "aten.tanh.default" in once[0]


def test_results_of_both_parts_are_kept():
    subprogram = subprogram_of(lambda x, w: [(y := x.exp()), y.t(), F.linear(y, w)], X, WEIGHT, num_outputs=3)
    (_, _, once), (_, _, each) = [
        (operators(piece.subprogram.body), piece.arguments, piece.results) for piece in divide(subprogram, [1])
    ]
    results = next(node for node in subprogram.body.graph.nodes if node.op == "output").args[0]
    assert {*once} | {*each} == {*results} and len(once) + len(each) == 3


def test_body_without_a_difference_is_one_part():
    assert len(divided(lambda x, weight: F.linear(x.exp(), weight), X, WEIGHT, own=[])) == 1
    assert len(divided(lambda x, weight: F.linear(x, weight).exp(), X, WEIGHT, own=[1])) == 1


def written(x, weight):
    total = x * 2
    before = total * weight
    total.view(-1).add_(1)
    return before + total.exp() * weight + x.tanh()


def test_a_tensor_that_is_written_stays_with_its_readers():
    """An add that ran before the first reader, or once for each core on one tensor, would change the result."""
    subprogram = subprogram_of(written, X, X)
    once, each = divide(subprogram, [1])
    assert operators(once.subprogram.body) == ["aten.tanh.default"]
    assert [name for name in operators(each.subprogram.body) if "add_" in name] == ["aten.add_.Tensor"]
    x, *weights = torch.randn(3, 2, 4)
    (alike,) = once.subprogram.body(x)
    inputs = [node for node in subprogram.body.graph.nodes if node.op == "placeholder"]
    for weight in weights:
        values = {inputs[0]: x, inputs[1]: weight, once.results[0]: alike}
        (result,) = each.subprogram.body(*(values[node] for node in each.arguments))
        torch.testing.assert_close(result, written(x, weight))
