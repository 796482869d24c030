"""A loss or gradient that is not finite stops training, with the step and the module."""

from __future__ import annotations

import copy

import pytest
import torch

from optimum_neuron.errors import NumericsError
from optimum_neuron.trainer.guard import find_culprit
from tests.raising import raises


class At(torch.nn.Module):
    """Returns infinity from the second step on."""

    def __init__(self, module, value):
        super().__init__()
        self.module, self.value, self.count = module, value, 0

    def forward(self, x):
        self.count += 1
        return self.module(x) * (self.value if self.count > 1 else 1.0)


@pytest.mark.full(days=4)
@pytest.mark.parametrize("compiled_model", [False, True], ids=["eager", "compiled"])
def test_step_and_module_are_named(train, one_layer, sentences, no_compiler, compiled_model):
    model = copy.deepcopy(one_layer)
    model.model.layers[0].mlp.up_proj = At(model.model.layers[0].mlp.up_proj, float("inf"))
    torch._dynamo.reset()
    with raises(NumericsError, step=2, module="model.layers.0.mlp.up_proj (At, float32; its inputs are finite)"):
        train(model, sentences, torch_compile=compiled_model)


def test_non_finite_gradients(train, llama, sentences):
    class Hole(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("nan")

    class Leaking(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, x):
            return Hole.apply(self.module(x))

    model = copy.deepcopy(llama)
    model.model.layers[0].mlp.down_proj = Leaking(model.model.layers[0].mlp.down_proj)
    with raises(NumericsError, step=1) as error:
        train(model, sentences)
    assert error.value.details["parameters"][0].startswith("model.layers.0.mlp.down_proj")


def test_fully_masked_labels(train, llama):
    rows = [{"input_ids": torch.arange(8), "labels": torch.full((8,), -100)}] * 8
    with raises(NumericsError, step=1, labels=-100):
        train(llama, rows)


def test_weights_non_finite_before_training(train, llama, sentences):
    model = copy.deepcopy(llama)
    model.model.norm.weight.data[0] = float("nan")
    with raises(NumericsError, step=1, weights=["model.norm.weight"]):
        train(model, sentences)


def test_finite_modules_have_no_finding():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    assert find_culprit(model, lambda: model(torch.ones(1, 2))) is None
    assert not model[0]._forward_hooks
