"""Compiled results match the CPU: forward, backward, mutation, random numbers, autocast, optimizers, breaks."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from optimum_neuron.device.dynamo.backend import choose_host_code
from optimum_neuron.device.dynamo.options import CompileOptions
from tests.device.conftest import OPTLEVELS
from tests.device.dynamo.conftest import compiled, language_loss, require_same_gradients


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 2))


def losses(model: nn.Module, run, device: str, steps: int = 3) -> list[float]:
    """Losses of a few AdamW steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    inputs, expected = torch.linspace(-1, 1, 32).view(4, 8).to(device), torch.ones(4, 2).to(device)
    results = []
    for _ in range(steps):
        loss = F.mse_loss(run(inputs), expected)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        results.append(loss.item())
    return results


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_training_losses_match_cpu(optlevel):
    host = network()
    model = copy.deepcopy(host).to("neuron")
    result = losses(model, compiled(model, optlevel=optlevel), "neuron")
    assert result == pytest.approx(losses(host, host, "cpu"), abs=1e-6) and result[2] < result[0]
    graphs = torch.neuron.compile_report().graphs
    assert [(graph.frame, graph.kind) for graph in graphs] == [("0/0", "forward"), ("0/0", "backward")]
    assert {graph.host_code.value for graph in graphs} == {"aten" if optlevel == "1" else "inductor"}


def test_model_of_transformers(one_layer):
    require_same_gradients(one_layer, "1", language_loss)


def test_dropout_follows_generator_of_core_only():
    dropped = compiled(lambda x: F.dropout(x, 0.5) * 2)
    x, before = torch.ones(64, device="neuron"), torch.get_rng_state()
    torch.neuron.manual_seed(0)
    first = dropped(x)
    second = dropped(x)
    torch.neuron.manual_seed(0)
    assert torch.equal(dropped(x), first) and not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before), "the host's generator is left alone"


def test_autocast_and_gradients():
    model = nn.Linear(4, 4).to("neuron")
    run = compiled(model)
    with torch.autocast("neuron"):
        result = run(torch.ones(2, 4, device="neuron"))
    result.float().sum().backward()
    assert result.dtype is torch.bfloat16 and model.weight.grad.dtype is torch.float32


@pytest.mark.full(days=3)
@pytest.mark.parametrize("options", [{}, {"foreach": False}, {"fused": True}], ids=["foreach", "single", "fused"])
def test_compiled_optimizer(options):
    steps = []
    for device in ("cpu", "neuron"):
        parameters = [torch.arange(6.0, device=device, requires_grad=True) for _ in range(2)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 0.5)
        optimizer = torch.optim.AdamW(parameters, lr=0.1, **options)
        (optimizer.step if device == "cpu" else compiled(lambda optimizer=optimizer: optimizer.step()))()
        steps.append(parameters[1].detach().cpu())
    torch.testing.assert_close(*steps, atol=1e-6, rtol=0)


def test_value_read_breaks_graph_and_continues():
    def scale(x):
        return x / (x.sum().item() + 1)

    assert compiled(scale)(torch.ones(3, device="neuron")).tolist() == [0.25] * 3
    report = torch.neuron.compile_report()
    assert len(report.graphs) == 2 and any("item()" in reason for reason in report.breaks)


def test_operands_are_rounded_on_request():
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    result = compiled(torch.mm, auto_cast="matmul")(a.to("neuron"), b.to("neuron")).cpu()
    assert torch.equal(result, a.bfloat16().float() @ b.bfloat16().float())
    assert not torch.equal(result, a @ b)
    assert torch.neuron.compile_report().graphs[0].auto_cast == "matmul to bf16"


def test_grouped_products_of_experts():
    ends = torch.tensor([16, 32], dtype=torch.int32, device="neuron")
    tokens, experts = torch.randn(32, 16, device="neuron"), torch.randn(2, 32, 16, device="neuron").transpose(-2, -1)
    arguments = (tokens.bfloat16(), experts.bfloat16(), ends)

    def product(x, w, ends):
        return torch._grouped_mm(x, w, offs=ends)

    assert torch.equal(compiled(product)(*arguments), product(*arguments))
    scales = torch.rand(32, device="neuron"), torch.rand(2, 32, device="neuron")
    arguments = (tokens.to(torch.float8_e4m3fn), experts.to(torch.float8_e4m3fn), *scales, ends)

    def scaled(x, w, scale_x, scale_w, ends):
        return torch._scaled_grouped_mm(x, w, scale_x, scale_w, offs=ends, out_dtype=torch.bfloat16)

    assert torch.equal(compiled(scaled, target="trn3")(*arguments), scaled(*arguments))
    with pytest.raises(Exception, match="no arithmetic for float8_e4m3fn"):
        compiled(scaled, target="inf2")(*arguments)


def test_unsupported_operator_is_named_with_its_line():
    def sorts(x):
        return torch.sort(x).values + 1

    with pytest.raises(Exception, match="NCC_EVRF001") as excinfo:
        compiled(sorts)(torch.randn(4, device="neuron"))
    assert "test_backend.py:" in str(excinfo.value) and "aten.sort" in str(excinfo.value)
    allowed = compiled(sorts, allow_host_ops=["aten::sort"])
    assert allowed(torch.tensor([2.0, 1.0], device="neuron")).tolist() == [2.0, 3.0]


def test_module_of_unsupported_operator_is_named_in_backward():
    class Sorts(nn.Module):
        def forward(self, x):
            return x.sort().values

    model = nn.Sequential(nn.Linear(4, 4), Sorts()).to("neuron")
    with pytest.raises(Exception, match=r"where: 1 \("):
        compiled(model)(torch.randn(2, 4, device="neuron"))


def test_host_tensors_compile_and_stay_on_host():
    assert compiled(lambda x: x * 2)(torch.ones(3)).device.type == "cpu"


def test_without_compiler_operators_run_eagerly(monkeypatch):
    monkeypatch.setattr("optimum_neuron.device.dynamo.backend.probe_compiler", lambda: None)
    choice = choose_host_code(CompileOptions())
    assert (choice.value, choice.reason) == ("aten", "no C++ compiler on this machine")
    assert "apt-get install" in choice.rejected[0].reason
