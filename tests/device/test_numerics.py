"""The device's arithmetic: the host's by default, the chip's rounding where it is asked for."""

from __future__ import annotations

import pytest
import torch

from optimum_neuron.compiler.passes import auto_cast
from optimum_neuron.device import numerics
from optimum_neuron.errors import ConfigError
from tests.raising import raises

KINDS = ("bf16", "fp16", "tf32", "fp8_e4m3")


def test_default_numerics_match_host():
    torch.manual_seed(0)
    a, b = torch.randn(16, 16), torch.randn(16, 16)
    assert numerics.current() == numerics.Numerics() and numerics.current().mode == "reference"
    assert torch.equal((a.to("neuron") @ b.to("neuron")).cpu(), a @ b)


@pytest.mark.parametrize("kind", KINDS)
def test_operands_are_rounded_as_by_compiler(kind):
    class Product(torch.nn.Module):
        def forward(self, a, b):
            return torch.mm(a, b)

    torch.manual_seed(0)
    a, b = torch.randn(8, 8) * 100, torch.randn(8, 8)
    body = auto_cast(torch.export.export(Product(), (a, b)).graph_module, kind="matmul", dtype=kind)
    expected = body(a, b)[0]
    on = a.to("neuron"), b.to("neuron")
    with numerics.use("emulated", auto_cast_type=kind):
        assert torch.equal(torch.mm(*on).cpu(), expected)
        assert torch.equal((on[0] + on[1]).cpu(), a + b)
    assert not torch.equal(expected, a @ b)
    assert torch.equal(torch.mm(*on).cpu(), a @ b)


@pytest.mark.parametrize(
    "product",
    [
        lambda x: torch.nn.functional.linear(x, x, x[0]),
        lambda x: torch.bmm(x[None], x[None]),
        lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    ],
    ids=["linear", "bmm", "conv", "attention"],
)
def test_every_product_and_its_gradient_is_rounded(product):
    torch.manual_seed(0)
    x = torch.randn(8, 8, device="neuron", requires_grad=True)
    results = {}
    for kind in ("none", "bf16"):
        with numerics.use("emulated", auto_cast_type=kind):
            out = product(x)
            results[kind] = (out, *torch.autograd.grad(out.pow(2).sum(), x))
    exact = product(x)
    assert torch.equal(results["none"][0], exact)
    for actual, expected in zip(results["bf16"], results["none"], strict=True):
        error = (actual - expected).abs().max() / expected.abs().max()
        assert 1e-5 < error < 3e-2


def test_16_bit_products_are_rounded_once():
    torch.manual_seed(0)
    a, b = torch.randn(8, 512).bfloat16(), torch.randn(512, 8).bfloat16()
    with numerics.use("emulated"):
        actual = (a.to("neuron") @ b.to("neuron")).cpu()
    assert torch.equal(actual, (a.float() @ b.float()).bfloat16())


def test_small_updates_survive_stochastic_rounding():
    def added(num_times):
        a = torch.tensor(1024.0, device="neuron").half()
        for _ in range(num_times):
            a = a + 0.5
        assert a.dtype is torch.float16
        return a.item()

    # Half a unit in the last place: to the nearest even, nothing is ever added.
    assert added(2048) == 1024
    with numerics.use("emulated", stochastic_rounding=True):
        # Each step adds 1 or nothing; 100 is more than four standard deviations.
        assert abs(added(2048) - 2048) < 100


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_expectation_is_exact_and_only_neighbors_occur(dtype):
    value = 1.0 + 0.3 * torch.finfo(dtype).eps
    exact = torch.full((20000,), value, device="neuron")
    for sign in (1, -1):
        with numerics.use("emulated", stochastic_rounding=True):
            rounded = (exact * sign).to(dtype)
        result = set(rounded.tolist())
        assert result == {sign * 1.0, sign * (1.0 + torch.finfo(dtype).eps)}
        share = (rounded.float().abs() > 1).float().mean().item()
        assert abs(share - 0.3) < 0.02


def test_representable_values_are_unchanged():
    values = torch.tensor([0.0, -0.0, 1.5, -2.0, float("inf"), float("-inf"), float("nan"), 2.0**-24]).to("neuron")
    with numerics.use("emulated", stochastic_rounding=True):
        for dtype in (torch.float16, torch.bfloat16):
            narrow = values.to(dtype)
            assert torch.equal(narrow.cpu().nan_to_num(7.0), values.cpu().to(dtype).nan_to_num(7.0))
            assert torch.equal((narrow * 1).cpu().nan_to_num(7.0), narrow.cpu().nan_to_num(7.0))


def test_tiny_values_are_rounded_between_zero_and_smallest():
    tiny = torch.full((1000,), 2.0**-26, device="neuron")
    with numerics.use("emulated", stochastic_rounding=True):
        rounded = tiny.half()
    assert set(rounded.tolist()) == {0.0, 2.0**-24} and 150 < (rounded > 0).sum() < 350


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
def test_training_in_bfloat16_moves_with_stochastic_rounding_only(options):
    def trained():
        weight = torch.nn.Parameter(torch.ones(2000, dtype=torch.bfloat16, device="neuron"))
        optimizer = torch.optim.SGD([weight], lr=1.0, **options)
        for _ in range(16):
            weight.grad = torch.full_like(weight, 2.0**-11)
            optimizer.step()
        return weight.float().mean().item()

    assert trained() == 1.0
    with numerics.use("emulated", stochastic_rounding=True):
        assert abs(trained() - (1 - 16 * 2**-11)) < 1e-3


def test_operators_of_every_shape_still_run():
    torch.manual_seed(0)
    x = torch.randn(4, 8).bfloat16()
    on = x.to("neuron")
    calls = [
        lambda t: torch.softmax(t, -1),
        lambda t: torch.nn.functional.layer_norm(t, (8,)),
        lambda t: t.sum(0, dtype=torch.bfloat16),
        lambda t: t.max(0).values,
        lambda t: torch.cat([t, t]).chunk(2)[1] * 2,
        lambda t: torch.add(t, t, out=torch.empty(0, dtype=t.dtype, device=t.device)),
        lambda t: t.clone().mul_(3).t(),
        lambda t: torch._foreach_mul([t, t], 2.0)[1],
        lambda t: t > 0,
        lambda t: t.to(torch.float32) + t,
    ]
    with numerics.use("emulated", stochastic_rounding=True):
        for number, call in enumerate(calls):
            actual, expected = call(on), call(x)
            assert actual.dtype is expected.dtype and actual.shape == expected.shape, number
            torch.testing.assert_close(actual.cpu().float(), expected.float(), rtol=2e-2, atol=2e-2)


def test_seed_repeats_rounding():
    x = torch.full((100,), 1.001, device="neuron")
    results = []
    for seed in (1, 1, 2):
        with numerics.use("emulated", stochastic_rounding=True, seed=seed):
            results.append(x.bfloat16().tolist())
    assert results[0] == results[1] != results[2]


def test_environment_chooses():
    choose = numerics.from_environment
    assert choose({}).value == numerics.Numerics()
    choice = choose({"NEURON_RT_STOCHASTIC_ROUNDING_EN": "1", "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "9"})
    assert choice.reason == "NEURON_RT_STOCHASTIC_ROUNDING_EN=1"
    assert choice.value == numerics.Numerics(mode="emulated", stochastic_rounding=True, seed=9)
    named = choose({"OPTIMUM_NEURON_NUMERICS": "emulated", "OPTIMUM_NEURON_AUTO_CAST_TYPE": "tf32"}).value
    assert (named.mode, named.auto_cast_type, named.stochastic_rounding) == ("emulated", "tf32", False)
    for environ, details in (
        ({"OPTIMUM_NEURON_NUMERICS": "emulate"}, {"variable": "OPTIMUM_NEURON_NUMERICS", "value": "emulate"}),
        (
            {"OPTIMUM_NEURON_NUMERICS": "emulated", "OPTIMUM_NEURON_AUTO_CAST_TYPE": "bf61"},
            {"variable": "OPTIMUM_NEURON_AUTO_CAST_TYPE", "value": "bf61"},
        ),
        (
            {"OPTIMUM_NEURON_NUMERICS": "reference", "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1"},
            {"options": ["mode", "stochastic_rounding"]},
        ),
        ({"OPTIMUM_NEURON_AUTO_CAST_TYPE": "tf32"}, {"variable": "OPTIMUM_NEURON_AUTO_CAST_TYPE", "value": "tf32"}),
    ):
        with raises(ConfigError, **details):
            choose(environ)


def test_another_process_reads_environment(python):
    program = """
import torch
x = torch.tensor(1024.0, device="neuron").half()
for _ in range(2048):
    x = x + 0.25
print(1100 < x.item() < 2048)
"""
    assert python(program, NEURON_RT_STOCHASTIC_ROUNDING_EN="1").stdout == "True\n"
    result = python(program, OPTIMUM_NEURON_NUMERICS="exact")
    assert result.returncode == 1 and "OPTIMUM_NEURON_NUMERICS=exact" in result.stderr


def test_unknown_values_are_errors():
    for options, details in (
        ({"mode": "exact"}, {"option": "mode", "value": "exact"}),
        ({"mode": "emulated", "auto_cast_type": "bf15"}, {"option": "auto_cast_type", "value": "bf15"}),
        ({"mode": "reference", "stochastic_rounding": True}, {"options": ["mode", "stochastic_rounding"]}),
    ):
        with raises(ConfigError, **details), numerics.use(**options):
            pass
    assert numerics.current().mode == "reference"
