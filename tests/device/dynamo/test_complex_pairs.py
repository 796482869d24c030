"""Complex rotary positions in compiled graphs: results and gradients are those of the CPU."""

from __future__ import annotations

import pytest
import torch

from tests.device.conftest import OPTLEVELS
from tests.device.dynamo.conftest import compiled

POSITIONS = torch.polar(torch.ones(16, 4), torch.arange(64.0).view(16, 4) / 10)


def rotated(x, positions):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    turned = pairs * positions[: x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(turned).flatten(3).type_as(x)


def rotated_from_angles(x, positions):
    return rotated(x, torch.polar(torch.ones_like(positions.real), positions.imag))


def rotated_by_index(x, positions):
    return rotated(x, positions[torch.arange(x.shape[1], device=x.device) + 1])


def viewed_and_combined(x, positions):
    z = torch.view_as_complex(x.view(2, 8, 3, 4, 2))
    turned = torch.cat([z.transpose(1, -1) * 2, -z.transpose(1, 3)], dim=-2) + z.permute(0, 3, 2, 1).repeat(1, 1, 2, 1)
    moved = turned.conj() - turned[:, 0].unsqueeze(1) / 3
    return (moved[:, :, :2] * moved[:, :, 2:4]).real + moved[:, :, :2].imag


def of_two_results(x, positions):
    """The second is complex."""
    turned = torch.view_as_complex(x.view(2, 8, 3, 4, 2)) * positions[:8].view(1, 8, 1, 4)
    return torch.view_as_real(turned), turned.detach() * 2


CASES = [rotated, rotated_from_angles, rotated_by_index, viewed_and_combined, of_two_results]


def run(function, device, dtype=torch.float32):
    x = torch.linspace(-1, 1, 384).view(2, 8, 3, 8).to(device, dtype).requires_grad_()
    results = function(x, POSITIONS.to(device))
    results = results if isinstance(results, tuple) else (results,)
    results[0].square().sum().backward()
    return [value.detach().cpu() for value in (*results, x.grad)]


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_rotary_positions(optlevel):
    torch.testing.assert_close(run(compiled(rotated, optlevel), "neuron"), run(rotated, "cpu"))


@pytest.mark.parametrize("function", CASES)
def test_results_and_gradients(function):
    torch.testing.assert_close(run(compiled(function), "neuron"), run(function, "cpu"))


def test_other_operators_are_refused():
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="NCC_EVRF004 aten.exp"):
        run(compiled(lambda x, positions: torch.view_as_complex(x.view(2, 8, 3, 4, 2)).exp().real), "neuron")
