"""Gradient checkpointing: the backward repeats a region of the forward, with the same random numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.device.conftest import OPTLEVELS, needs_compiler
from tests.device.dynamo.conftest import compiled, language_loss, require_same_gradients
from tests.device.rotary import keeping_products


class Dropped(torch.nn.Module):
    """Its gradient shows the mask that the backward used, and its result the one of the forward."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))
        self.use_reentrant = use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.region, x, use_reentrant=self.use_reentrant)

    def region(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.weight * x, 0.5, training=True) * x


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_backward_repeats_mask_of_dropout(optlevel, use_reentrant):
    module = Dropped(use_reentrant).to("neuron")
    function, x = compiled(module, optlevel), torch.ones(64, device="neuron", requires_grad=True)
    masks = []
    for _ in range(2):
        module.zero_grad()
        masks.append(function(x))
        torch.rand(3, device="neuron")  # between forward and backward, the generator moves
        masks[-1].sum().backward()
        assert set(masks[-1].tolist()) == {0, 2}
        assert torch.equal(module.weight.grad, masks[-1].detach())
    assert not torch.equal(*masks)
    assert [graph.kind for graph in torch.neuron.compile_report().graphs] == ["forward", "backward"]


def test_mask_is_that_of_eager_mode_operator_by_operator():
    module, x = Dropped(use_reentrant=False).to("neuron"), torch.ones(64, device="neuron")
    torch.manual_seed(3)
    expected = module(x)
    torch.manual_seed(3)
    assert torch.equal(compiled(module)(x), expected)


@pytest.mark.full(days=2)
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_transformers_model_trains_with_checkpoints(one_layer, use_reentrant):
    model = copy.deepcopy(one_layer).train()
    model.config.use_cache = False  # transformers logs that it does so, which breaks the graph
    model.activation_checkpointing_enable({"use_reentrant": use_reentrant})
    require_same_gradients(model, "1", language_loss)
    forward, backward = torch.neuron.compile_report().graphs
    assert forward.host_ops == backward.host_ops == ()
    flops = {graph.kind: sum(graph.estimate.num_flops.values()) for graph in (forward, backward)}
    assert flops["backward"] > 2 * flops["forward"]  # it repeats the forward


class Selected(torch.nn.Module):
    """Keeps the results of its products, and repeats the rest: the policy of TorchTitan's selective checkpoints."""

    def __init__(self, region: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.eye(16) + 0.1 for _ in range(2))
        self.region = region

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            x = checkpoint(self.region, x, weight, use_reentrant=False, context_fn=keeping_products)
        return x


def dropped(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x @ weight, 0.5, training=True) * weight.sum(0)


def attended(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    heads = (x @ weight).view(2, 8, 2, 8).transpose(1, 2)
    scores = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return scores.transpose(1, 2).reshape(16, 16).sin()


@pytest.mark.full(days=4)
@pytest.mark.parametrize(("optlevel", "dynamic"), [("1", True), pytest.param("2", None, marks=needs_compiler)])
def test_selective_checkpoints_repeat_attention(optlevel, dynamic):
    host, x = Selected(attended), torch.linspace(-1, 1, 256).view(16, 16)
    actual = copy.deepcopy(host).to("neuron")
    function = torch.compile(actual, backend="neuron", dynamic=dynamic, options={"optlevel": optlevel})
    expected, loss = host(x).square().sum(), function(x.to("neuron")).square().sum()
    expected.backward()
    loss.backward()
    torch.testing.assert_close(loss.cpu(), expected)
    for weight, other in zip(host.weights, actual.weights, strict=True):
        torch.testing.assert_close(other.grad.cpu(), weight.grad)
    assert [graph.kind for graph in torch.neuron.compile_report().graphs] == ["forward", "backward"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_selective_checkpoints_repeat_masks(dynamic):
    module = Selected(dropped).to("neuron")
    function = torch.compile(module, backend="neuron", dynamic=dynamic, options={"optlevel": "1"})
    x = torch.eye(16, device="neuron").requires_grad_()
    result = function(x)
    torch.rand(3, device="neuron")  # between forward and backward, the generator moves
    result.sum().backward()
    # The function is linear in x: with the same masks, its gradient and x make the result.
    torch.testing.assert_close((x.grad * x).sum(), result.detach().sum())
    assert (result == 0).any() and (result != 0).any()
    # A symbol in it would need a guard, but belongs to no input of the function.
    assert {type(graph.estimate.size_bytes) for graph in torch.neuron.compile_report().graphs} == {int}
