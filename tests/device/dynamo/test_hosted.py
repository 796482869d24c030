"""Operators that only the host can run: custom operators, and the default experts of transformers models."""

from __future__ import annotations

import pytest
import torch

from tests.device.conftest import OPTLEVELS
from tests.device.dynamo.conftest import compiled, language_loss, require_same_gradients


@torch.library.custom_op("hosted_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


twice.register_autograd(lambda context, gradient: gradient * 2)


@torch.library.custom_op("hosted_test::increase", mutates_args=("x",))
def increase(x: torch.Tensor) -> None:
    x.add_(1)


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_custom_operator_stays_in_graph_with_gradient(optlevel):
    x = torch.ones(2, device="neuron", requires_grad=True)
    loss = compiled(lambda x: (twice(x) + 1).sum(), optlevel)(x)
    loss.backward()
    assert loss.item() == 6 and x.grad.tolist() == [2, 2]
    report = torch.neuron.compile_report()
    assert report.graphs[0].host_ops == ("hosted_test.twice",) and not report.breaks
    assert report.to_dict()["graphs"][0]["host_ops"] == ["hosted_test.twice"]


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_custom_operator_may_write_to_its_arguments(optlevel):
    def change(x):
        increase(x)
        return x * 2

    x = torch.ones(2, device="neuron")
    assert compiled(change, optlevel)(x).tolist() == [4, 4] and x.tolist() == [2, 2]
    assert torch.neuron.compile_report().graphs[0].host_ops == ("hosted_test.increase",)


def test_custom_operator_with_kernel_of_device_is_error():
    library = torch.library.Library("hosted_test", "FRAGMENT")
    library.define("own(Tensor x) -> Tensor")
    for key in ("CPU", "PrivateUse1"):
        library.impl("own", lambda x: x * 2, key)
    torch.library.register_fake("hosted_test::own", torch.empty_like, lib=library)
    with pytest.raises(Exception, match="NCC_EUOC002 hosted_test.own"):
        compiled(torch.ops.hosted_test.own)(torch.ones(2, device="neuron"))


@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_operator_of_torch_without_rule_runs_on_host_with_gradient(optlevel):
    x = torch.linspace(1, 2, 6).view(3, 2)
    host, device = x.clone().requires_grad_(), x.to("neuron").requires_grad_()

    def loss(x):
        return torch.lgamma(x).sum() + torch.cdist(x, x.flip(0)).sum()

    loss(host).backward()
    compiled(loss, optlevel)(device).backward()
    torch.testing.assert_close(device.grad.cpu(), host.grad)
    forward, backward = torch.neuron.compile_report().graphs
    assert forward.host_ops == ("aten.lgamma",) and set(backward.host_ops) == {"aten.digamma"}


def test_linalg_inverse_checks_its_result_in_graph():
    inverse = compiled(torch.linalg.inv)
    assert inverse(2 * torch.eye(2, device="neuron")).tolist() == [[0.5, 0], [0, 0.5]]
    with pytest.raises(torch.linalg.LinAlgError):
        inverse(torch.zeros(2, 2, device="neuron"))


def test_sort_without_experts_is_still_refused():
    with pytest.raises(Exception, match="NCC_EVRF001"):
        compiled(lambda x: twice(x).sort().values)(torch.ones(2, device="neuron"))


def experts_loss(experts, device):
    states = torch.linspace(-1, 1, 8 * 32, device=device).view(1, 8, 32)
    return (1000 * experts(states)).square().mean()  # weights, and so results, are small


@pytest.mark.full(days=4)
@pytest.mark.parametrize("optlevel", OPTLEVELS)
def test_transformers_default_experts_train(optlevel):
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 32, "head_dim": 8}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    config = Qwen3MoeConfig(**sizes, **heads, num_experts=4, num_experts_per_tok=2)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    if optlevel == "1":
        require_same_gradients(model, optlevel, language_loss)
    else:  # a whole model takes Inductor a minute
        require_same_gradients(model.model.layers[0].mlp, optlevel, experts_loss)
    hosted = {name for graph in torch.neuron.compile_report().graphs for name in graph.host_ops}
    experts = {"transformers.grouped_mm_fallback", "transformers.grouped_mm_fallback_backward"}
    assert hosted == {"aten.histc", "aten.sort", *experts}
