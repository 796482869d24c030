"""Text records of a forward: equal for equal layers, different for all others."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from optimum_neuron.compiler import fake_parameters
from optimum_neuron.compiler.record import record


class Layer(nn.Module):
    """Calls a function of the layer, a tensor and a state."""

    def __init__(self, index, function):
        super().__init__()
        self.layer_idx, self.function = index, function
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("stored", torch.ones(4))
        self.register_buffer("table", torch.ones(4), persistent=False)

    def forward(self, x, state):
        return self.function(self, x, state)


class Model(nn.Module):
    def __init__(self, function, num_layers=4):
        super().__init__()
        self.layers = nn.ModuleList(Layer(index, function) for index in range(num_layers))

    def forward(self, x, states):
        x = x * 2
        for layer, state in zip(self.layers, states, strict=True):
            x = layer(x, state)
        return x.tanh()


def recorded(module, num_layers=4):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with fake_parameters(module, mode), mode, torch.no_grad():
        states = {f"sum.{index}": torch.empty(4) for index in range(num_layers)}
        return record(module, {"x": torch.empty(4)}, states, [f"layers.{index}" for index in range(num_layers)])


def layer_texts(function):
    """Computation of the layers, after the head and before the tail."""
    segments = recorded(Model(function))
    assert [segment.place for segment in segments] == ["between 0", *(f"layers.{i}" for i in range(4)), "between 1"]
    return [segment.operators for segment in segments[1:-1]]


def test_text_names_operators_and_tensor_origins():
    model = Model(lambda layer, x, state: state.add_(x * layer.weight + 1.5))
    head, first, second, _, _, tail = recorded(model)
    assert head.operators == ["aten.mul.Tensor(input:x float32 [4], 2)"]
    assert first.operators == [
        "aten.mul.Tensor(between 0:0, weight:#.weight float32 [4])",
        "aten.add.Tensor(here:0, 1.5)",
        "aten.add_.Tensor(state:sum.# float32 [4], here:1)",
    ]
    # A layer returns its state here: the next one knows it by its name.
    assert second.operators[0] == "aten.mul.Tensor(state:sum.0 float32 [4], weight:#.weight float32 [4])"
    assert tail.operators == ["aten.tanh.default(state:sum.3 float32 [4])", "return(here:0)"]


SAME = {
    "own weight and buffer": lambda layer, x, state: x * layer.weight + layer.stored,
    "own state, written and read": lambda layer, x, state: x + state.add_(1) + state,
    "equal constants": lambda layer, x, state: x * layer.table,
    "constants made in forward": lambda layer, x, state: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "several results": lambda layer, x, state: torch.cat(x.chunk(2)[::-1]),
    "stored index": lambda layer, x, state: x.sin() if layer.layer_idx < 100 else x.cos(),
    "detached": lambda layer, x, state: x.detach() + 1,
}


@pytest.mark.parametrize("function", SAME.values(), ids=SAME)
def test_equal_layers_have_equal_text(function):
    first, *others = layer_texts(function)
    assert others[0] == others[1] == others[2] and len(first) == len(others[0])


LATE = {
    "another operator": lambda layer, x, state: x.sin() if layer.layer_idx < 2 else x.cos(),
    "one operator more": lambda layer, x, state: x.sin() if layer.layer_idx < 2 else x.sin().sin(),
    "another number": lambda layer, x, state: x * (2 if layer.layer_idx < 2 else 3),
    "a number of another type": lambda layer, x, state: x * (2 if layer.layer_idx < 2 else 2.0),
    "a keyword": lambda layer, x, state: torch.add(x, x, alpha=1 + layer.layer_idx // 2),
    "order": lambda layer, x, state: x.sin() - x.cos() if layer.layer_idx < 2 else x.cos() - x.sin(),
    "arguments exchanged": lambda layer, x, state: (x - state) if layer.layer_idx < 2 else (state - x),
    "another constant": lambda layer, x, state: x + torch.tensor(float(layer.layer_idx // 2)),
    "a constant of another type": lambda layer, x, state: x + torch.zeros(4, dtype=(torch.float, torch.int)[
        layer.layer_idx // 2
    ]),
    "another result": lambda layer, x, state: x.chunk(2)[layer.layer_idx // 2].repeat(2),
}  # fmt: skip


@pytest.mark.parametrize("function", LATE.values(), ids=LATE)
def test_different_late_layers_have_different_text(function):
    _, second, third, fourth = layer_texts(function)
    assert second != third and [text.partition("(")[0] for text in third] == [text.partition("(")[0] for text in fourth]


def texts_of(change):
    model = Model(lambda layer, x, state: x * layer.weight + layer.stored + layer.table)
    change(model.layers)
    return [segment.operators for segment in recorded(model)[1:-1]]


def test_weight_values_are_ignored_and_constant_values_are_not():
    def fill(name):
        return lambda layers: getattr(layers[2], name).data.fill_(7)

    _, second, third, fourth = texts_of(fill("weight"))
    assert second == third == fourth
    _, second, third, fourth = texts_of(fill("table"))
    assert second == fourth != third


def test_weight_shape_and_dtype_are_recorded():
    for tensor in (torch.ones(1), torch.ones(4, dtype=torch.bfloat16)):
        _, second, third, fourth = texts_of(lambda layers, t=tensor: setattr(layers[2], "weight", nn.Parameter(t)))
        assert second == fourth != third


def test_weight_shared_by_some_layers_is_recorded():
    def share(layers):
        layers[3].weight = layers[2].weight

    _, second, third, fourth = texts_of(share)
    assert second == third != fourth and "weight:layers.2.weight" in fourth[0]


def test_state_and_results_of_other_layers_keep_their_place():
    class LooksBack(Model):
        def forward(self, x, states):
            results = [x]
            for index, layer in enumerate(self.layers):
                results.append(layer(results[-1], states[0] if index < 2 else results[index - 1]))
            return results[-1]

    segments = recorded(LooksBack(lambda layer, x, other: x + other))
    texts = {segment.place: segment.operators for segment in segments}
    assert texts["layers.0"] == ["aten.add.Tensor(input:x float32 [4], state:sum.# float32 [4])"]
    assert texts["layers.1"] == ["aten.add.Tensor(before:0, state:sum.0 float32 [4])"]
    assert texts["layers.2"] == ["aten.add.Tensor(before:0, layers.0:0)"]
    assert texts["layers.3"] == ["aten.add.Tensor(before:0, layers.1:0)"]


def test_module_with_several_paths_uses_the_first():
    layer = Layer(0, lambda layer, x, state: x.sin())
    model = Model(None)
    model.layers = nn.ModuleList([layer] * 4)
    assert [segment.place for segment in recorded(model)] == ["between 0", "layers.0", "between 1"]


def test_fake_tensor_of_unknown_origin_equals_nothing():
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        hidden = torch.empty(4)
    model = nn.Module()
    model.forward = lambda x: x + hidden
    with mode, torch.no_grad():
        first, second = (record(model, {"x": torch.empty(4)}, {}, ()) for _ in range(2))
    assert first != second


def test_hooks_are_removed():
    model = Model(lambda layer, x, state: x)
    recorded(model)
    model.layers[3].function = lambda layer, x, state: 1 / 0
    with pytest.raises(ZeroDivisionError):
        recorded(model)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in model.layers)
