"""Training on the device is training on the CPU in the `reference` numerics; one library multiplying, bit for bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from optimum_neuron.device import products
from tests.device.conftest import make_llama


def losses(model: nn.Module, device: str, steps: int = 3, lr: float = 1e-2) -> list[float]:
    """Losses of AdamW steps of a copy of the model."""
    model = copy.deepcopy(model).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    ids = torch.arange(64).view(2, 32).to(device)
    results = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        results.append(loss.item())
    return results


def test_llama_losses_match_cpu_bitwise(llama):
    actual, expected = losses(llama, "neuron"), losses(llama, "cpu")
    assert actual == expected and actual[-1] < actual[0]


def test_losses_of_large_products_match_cpu():
    wide_llama = make_llama(hidden_size=128, intermediate_size=512)  # products of the size that oneDNN computes
    expected = losses(wide_llama, "cpu", lr=1e-3)
    with products.use("blas"):
        assert losses(wide_llama, "neuron", lr=1e-3) == expected
    with products.use("onednn"):
        actual = losses(wide_llama, "neuron", lr=1e-3)
    assert actual == pytest.approx(expected, rel=1e-6) and actual != expected


def test_gradient_checkpointing_changes_nothing(llama):
    model = copy.deepcopy(llama)
    model.gradient_checkpointing_enable()
    assert losses(model, "neuron") == losses(llama, "cpu")


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_optimizers(kind, options):
    torch.manual_seed(0)
    cpu_model = nn.Linear(4, 4)
    device_model = copy.deepcopy(cpu_model).to("neuron")
    x = torch.randn(2, 4)
    for module, inputs in ((cpu_model, x), (device_model, x.to("neuron"))):
        optimizer = kind(module.parameters(), lr=0.1, **options)
        for _ in range(2):
            optimizer.zero_grad()
            module(inputs).pow(2).sum().backward()
            optimizer.step()
    assert torch.equal(cpu_model.weight, device_model.weight.cpu())
