"""Tensors that a compiled function makes itself, or finds outside its arguments, equal those of the CPU."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.device.conftest import needs_compiler
from tests.device.dynamo.conftest import compiled
from tests.device.dynamo.warm import AOTAUTOGRAD, loaded_from, restart

MADE_INSIDE = {
    "scalar": lambda x: x * torch.tensor(2.0, device=x.device),
    "integer": lambda x: x * torch.tensor(2, device=x.device),
    "scalar of the CPU": lambda x: x * torch.tensor(2.0),
    "math": lambda x: x * torch.tensor(math.pi, device=x.device),
    "list": lambda x: x * torch.tensor([1.0, 2.0, 3.0], device=x.device),
    "as_tensor": lambda x: x + torch.as_tensor([[1.0, 2.0, 3.0]], device=x.device),
    "new_tensor": lambda x: x * x.new_tensor([1.0, 2.0, 3.0]),
    "moved": lambda x: x * torch.tensor([1.0, 2.0, 3.0]).to(x.device),
    "list of indices": lambda x: x[:, [2, 0]],
    "two lists of indices": lambda x: x[[0, 1], [2, 0]],
    "tensor of indices": lambda x: x[:, torch.tensor([2, 0], device=x.device)],
    "creation": lambda x: x * torch.arange(3, device=x.device) + torch.linspace(0, 1, 3, device=x.device),
    "full": lambda x: x * torch.full((3,), 2.0, device=x.device) + torch.scalar_tensor(1.0, device=x.device),
    "where": lambda x: torch.where(x > 0, x, torch.tensor(-1.0, device=x.device)),
    "where with numbers": lambda x: torch.where(x > 0, 1.0, 0.5) * torch.where(x < 1, x, 0.0),
    "masks": lambda x: x.masked_fill(torch.ones(4, 3, device=x.device).tril() == 0, -torch.inf).softmax(-1),
    "bounds": lambda x: x.clamp(torch.tensor(-0.5, device=x.device), torch.tensor(0.5, device=x.device)),
    "table": lambda x: F.embedding(torch.tensor([0, 2, 1], device=x.device), x),
    "changed": lambda x: torch.tensor([1.0, 2.0, 3.0], device=x.device).add_(1) * x,
    "a result": lambda x: (x.sum(), torch.tensor([1.0, 2.0], device=x.device)),
    "labels": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2, 0], device=x.device), x.new_tensor([1.0, 2.0, 3.0])),
}


def written(x):
    y = x.clone()
    y[:, [0, 2]] = 0.0
    y[[2, 3]] = torch.tensor([1.0, 2.0, 3.0], device=x.device)
    return y


def closing_over(device):
    scale, shifts = torch.tensor(3.0, device=device), [torch.arange(3.0, device=device)]
    named = {"mask": torch.tensor([True, False, True], device=device)}
    return lambda x: torch.where(named["mask"], x * scale + shifts[0], x)


def with_defaults(device):
    three, one = torch.tensor(3.0, device=device), torch.ones(3, device=device)

    def scaled(x, scale=three, shifts=(one,)):
        return x * scale + shifts[0]

    return scaled


def counting(device):
    count = torch.zeros(3, device=device)

    def scaled(x):
        count.add_(1)
        return x * count

    return scaled


class Nested(nn.Module):
    """Tensors as a buffer of a child, as plain attributes, and made in `forward`."""

    def __init__(self, device):
        super().__init__()
        self.child = nn.Module()
        self.child.register_buffer("shift", torch.arange(3.0), persistent=False)
        self.order = [2, 0, 1]
        self.scales = [torch.full((3,), 2.0, device=device)]
        self.to(device)

    def forward(self, x):
        return (x + self.child.shift)[:, self.order] * self.scales[0] * torch.tensor(0.5, device=x.device)


FOUND_OUTSIDE = {
    "closure": closing_over,
    "defaults": with_defaults,
    "partial": lambda device: functools.partial(torch.mul, torch.ones(3, device=device) * 2),
    "changed": counting,
    "module": Nested,
}


def run(function, device):
    """Results and gradient of two calls."""
    x = torch.linspace(-2, 2, 12).view(4, 3).to(device).requires_grad_()
    values = []
    for _ in range(2):
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        assert {value.device.type for value in results} == {device}
        results[0].square().sum().backward()
        values += [value.detach().cpu() for value in results]
    return [*values, x.grad.cpu()]


def require_equal(make, **options):
    function = torch.compile(make("neuron"), backend="neuron", options={"optlevel": "1"}, fullgraph=True, **options)
    torch.testing.assert_close(run(function, "neuron"), run(make("cpu"), "cpu"))


@pytest.mark.full(days=2)
@pytest.mark.parametrize("name", MADE_INSIDE)
def test_made_inside(name):
    require_equal(lambda device: MADE_INSIDE[name])


def test_written_with_constants():
    require_equal(lambda device: written)


@pytest.mark.parametrize("name", FOUND_OUTSIDE)
def test_found_outside(name):
    require_equal(FOUND_OUTSIDE[name])


def test_dynamic_sizes():
    require_equal(lambda device: MADE_INSIDE["list"], dynamic=True)


@pytest.mark.full(days=2)
@needs_compiler
@pytest.mark.parametrize("name", ["scalar", "list of indices"])
def test_constants_come_back_from_the_cache(empty_cache, name):
    for origin in (None, AOTAUTOGRAD):
        restart()
        function = compiled(MADE_INSIDE[name], "2")
        torch.testing.assert_close(run(function, "neuron"), run(MADE_INSIDE[name], "cpu"))
        assert loaded_from() == [origin] * 2
