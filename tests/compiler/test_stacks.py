"""Which stacks of layers may be captured short, and that the layers come back."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.compiler.stacks import find_stacks, shortened


class Layer(nn.Module):
    def __init__(self, index=0, size=4, **attributes):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.layer_idx = index
        vars(self).update(attributes)

    def method(self):
        return self


class Model(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)


def only_stack(layers):
    (stack,) = find_stacks(Model(layers))
    return stack


def test_equal_layers_are_shortened_whatever_their_own_index():
    stack = only_stack(Layer(index) for index in range(5))
    assert (stack.path, stack.num_layers, stack.captured.value) == ("layers", 5, 2)
    assert stack.captured.reason == "5 layers have equal attributes and shapes"


@pytest.mark.parametrize("num_layers", [0, 1])
def test_less_than_two_layers_are_no_stack(num_layers):
    assert find_stacks(Model([Layer() for _ in range(num_layers)])) == ()


def test_two_layers_are_captured_whole():
    assert only_stack([Layer(), Layer()]).captured.value == 2


def test_layers_of_several_classes_are_no_stack():
    assert find_stacks(Model([Layer(), Layer(), nn.Linear(4, 4)])) == ()


DIFFERENCES = {
    "number": ("scale", 1.0, 2.0),
    "text": ("kind", "full", "sliding"),
    "none": ("window", None, 8),
    "type of number": ("dtype", torch.float32, torch.bfloat16),
    "private": ("_window", 4, 8),
    "tuple": ("heads", (1, 2), (1, 3)),
    "list": ("heads", [1, 2], [1, 3]),
    "dictionary": ("options", {"a": [1]}, {"a": [2]}),
    "function": ("act", F.relu, F.gelu),
    "partial": ("act", functools.partial(F.softmax, dim=0), functools.partial(F.softmax, dim=1)),
    "array": ("table", torch.arange(3).numpy(), torch.zeros(3).numpy()),
    "plain tensor": ("table", torch.zeros(2), torch.zeros(3)),
    "training": ("training", True, False),
}


@pytest.mark.parametrize(("name", "usual", "other"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_a_different_attribute_of_a_late_layer_is_found_and_named(name, usual, other):
    stack = only_stack(Layer(index, **{name: usual if index < 3 else other}) for index in range(4))
    assert stack.captured.value == 4
    assert stack.captured.reason == f"layers 0 and 3 differ in {name}: captured whole"
    assert only_stack(Layer(index, **{name: usual}) for index in range(4)).captured.value == 2


def with_extra_parameter(index):
    layer = Layer(index)
    if index == 2:
        layer.linear.register_parameter("extra", nn.Parameter(torch.zeros(1)))
    return layer


def with_buffer(index):
    layer = Layer(index)
    layer.register_buffer("table", torch.zeros(2 if index < 2 else 3))
    return layer


def with_other_child(index):
    layer = Layer(index)
    layer.norm = nn.LayerNorm(4) if index < 2 else nn.RMSNorm(4)
    return layer


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda index: Layer(index, size=4 if index < 2 else 8), "linear.bias"),
        (lambda index: Layer(index).to(torch.float16 if index == 2 else torch.float32), "linear.bias"),
        (with_extra_parameter, "linear.extra"),
        (with_buffer, "table"),
        (with_other_child, "norm.bias"),
    ],
    ids=["size", "dtype", "parameter", "buffer", "class"],
)
def test_a_difference_inside_a_layer_is_found_and_named(make, name):
    stack = only_stack(make(index) for index in range(3))
    assert stack.captured.value == 3
    assert stack.captured.reason == f"layers 0 and 2 differ in {name}: captured whole"


def test_objects_that_layers_share_and_their_own_methods_are_no_difference():
    config, layers = object(), [Layer(index) for index in range(3)]
    for layer in layers:
        layer.config, layer.run = config, layer.method
    assert only_stack(layers).captured.value == 2
    layers[2].config = object()
    assert only_stack(layers).captured.value == 3


def test_a_weight_that_all_layers_share_is_fine_and_one_that_some_share_is_not():
    layers = [Layer(index) for index in range(4)]
    for layer in layers:
        layer.linear = layers[0].linear
    assert only_stack(layers).captured.value == 2
    layers[2].linear = layers[3].linear = nn.Linear(4, 4)
    stack = only_stack(layers)
    assert (stack.captured.value, stack.captured.reason) == (
        4,
        "some layers share linear.weight and others do not: captured whole",
    )


def test_a_tie_inside_a_late_layer_is_found():
    layers = [Layer(index) for index in range(3)]
    for layer in layers:
        layer.second = nn.Linear(4, 4)
    assert only_stack(layers).captured.value == 2
    layers[2].second.weight = layers[2].linear.weight
    assert "layers 0 and 2 differ in second.weight" in only_stack(layers).captured.reason


def test_the_outermost_of_nested_lists_counts_and_lists_side_by_side_all_do():
    def expert_layer(index, experts=3):
        layer = Layer(index)
        layer.experts = nn.ModuleList(nn.Linear(2, 2) for _ in range(experts))
        return layer

    model = Model(expert_layer(index) for index in range(4))
    model.layers_after = nn.ModuleList(nn.LayerNorm(2) for _ in range(3))
    found = {stack.path: stack.captured.value for stack in find_stacks(model)}
    assert found == {"layers": 2, "layers_after": 2}
    model.layers[3] = expert_layer(3, experts=4)
    assert find_stacks(model)[0].captured.value == 4


def test_shortened_cuts_and_restores_in_order():
    model = Model(Layer(index) for index in range(12))
    before = list(model.layers)
    with shortened(model, find_stacks(model)):
        assert list(model.layers) == before[:2]
        assert [name for name, _ in model.named_parameters()][-1] == "layers.1.linear.bias"
    assert list(model.layers) == before and list(model.layers._modules) == [str(index) for index in range(12)]


def test_shortened_restores_after_an_error_inside_and_after_a_stack_that_is_not_there():
    model = Model(Layer(index) for index in range(4))
    stacks, before = find_stacks(model), list(model.layers)
    with pytest.raises(ZeroDivisionError), shortened(model, stacks):
        raise ZeroDivisionError
    assert list(model.layers) == before
    elsewhere = find_stacks(nn.ModuleDict({"other": nn.ModuleList(Layer() for _ in range(3))}))
    with pytest.raises(AttributeError), shortened(model, (*stacks, *elsewhere)):
        pass
    assert list(model.layers) == before
