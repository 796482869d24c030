"""Operators that torch decomposes or differentiates in float64 compile, and equal those of the CPU."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.device.dynamo import decompositions
from tests.device.conftest import OPTLEVELS
from tests.device.dynamo.conftest import compiled

SIZES = [(0, 3, 0), (4, 0, 0), (1, 1, 0), (3, 5, 0), (5, 3, 1), (5, 3, -2), (4, 4, 9), (4, 4, -9), (2, 6, 3)]
"""Rows, columns, and diagonals of triangles."""


def triangles(device: str) -> list[torch.Tensor]:
    whole = [function(*size, device=device) for function in (torch.tril_indices, torch.triu_indices) for size in SIZES]
    return [*whole, torch.tril_indices(3, 3, dtype=torch.int32, device=device)]


def spaces(start: torch.Tensor, end: torch.Tensor, device: str) -> list[torch.Tensor]:
    return [
        torch.linspace(start, end, 5, device=device),
        torch.linspace(start, 2, 1, device=device),
        torch.linspace(0.5, end, 4, device=device, dtype=torch.int64),
        torch.logspace(0, 3, 7, base=2.0, device=device),
        torch.logspace(start, 2, 3, device=device),
        torch.logspace(0, end, 4, device=device, dtype=torch.int64),
        torch.logspace(start, end, 2, base=3, device=device, dtype=torch.bfloat16),
    ]


def require_equal(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert one.device.type == "neuron"
        torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_triangles_and_spaced_numbers(optlevel, monkeypatch):
    # Inductor refuses operators that it can decompose where it believes that it runs in torch's own CI.
    monkeypatch.setenv("CI", "true")
    require_equal(compiled(triangles, optlevel)("neuron"), triangles("cpu"))
    ends = torch.tensor(-1.0), torch.tensor(3.7)
    actual = compiled(spaces, optlevel)(*(end.to("neuron") for end in ends), "neuron")
    require_equal(actual, spaces(*ends, "cpu"))
    assert {graph.host_ops for graph in torch.neuron.compile_report().graphs} == {()}


@pytest.mark.full(days=2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [1, 2, 3.5, float("inf")])
def test_renorm_and_its_gradient(p, dtype):
    results = []
    for device in ("cpu", "neuron"):
        x = torch.linspace(-2, 2, 12, dtype=dtype).view(3, 4).to(device).requires_grad_()
        renorm = torch.renorm if device == "cpu" else compiled(torch.renorm)
        parts = [renorm(x, p, dim, 1.5) for dim in (0, -1)]
        sum(part.sin().sum() for part in parts).backward()
        results.append([part.detach().cpu() for part in parts] + [x.grad.cpu()])
    expected, actual = results
    torch.testing.assert_close(actual, expected, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=2e-2)


@pytest.mark.parametrize("arguments", [(0.0, 0, 1.0), (2.0, 0, -1.0)])
def test_renorm_refuses_what_torch_refuses(arguments):
    with pytest.raises(Exception, match="renorm"):
        compiled(torch.renorm)(torch.ones(2, 2, device="neuron"), *arguments)


def test_torch_can_store_the_table():
    table = decompositions.table()
    make, arguments = table.__reduce__()
    assert make(*arguments) == table and not decompositions.WHOLE & table.keys()
