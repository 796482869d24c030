"""Gradient checkpointing: the backward repeats a region of the forward, with the same random numbers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.device.conftest import OPTLEVELS
from tests.device.dynamo.conftest import compiled, language_loss, require_same_gradients


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
