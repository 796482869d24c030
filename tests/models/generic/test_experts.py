"""Experts of a mixture: the result is that of transformers, and few or many tokens take memory that fits."""

from __future__ import annotations

import pytest
import torch
from transformers.integrations.moe import batched_mm_experts_forward
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from optimum_neuron.models.generic import experts
from optimum_neuron.simulator import capture_model
from optimum_neuron.sources import load_source
from tests.tiny import tiny_config, write_config

SIZES = {"num_local_experts": 4, "num_experts_per_tok": 2}


def routed(kind, num_tokens, *, seed=0):
    """A layer of experts with random weights, tokens, and two experts of each."""
    torch.manual_seed(seed)
    layer = kind(tiny_config("gpt_oss" if kind is GptOssExperts else "mixtral", **SIZES))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(0, 0.2)
    scores = torch.rand(num_tokens, 4).softmax(-1)
    weights, index = scores.topk(2)
    return layer, torch.randn(num_tokens, 32), index, weights


@pytest.mark.parametrize("kind", [MixtralExperts, GptOssExperts])  # plain and transposed, with and without biases
@pytest.mark.parametrize("num_tokens", [1, 2, 9])
def test_the_result_is_that_of_transformers(kind, num_tokens):
    layer, *inputs = routed(kind, num_tokens)
    with torch.no_grad():
        wanted = batched_mm_experts_forward(layer, *inputs)
        torch.testing.assert_close(experts.experts_forward(layer, *inputs), wanted, atol=1e-5, rtol=1e-5)


def test_an_expert_that_nobody_chose_may_overflow():
    layer, x, index, weights = routed(MixtralExperts, 9)
    index = torch.tensor([[0, 1]]).expand(9, -1)
    with torch.no_grad():
        layer.gate_up_proj[3] = torch.inf
        found = experts.experts_forward(layer, x, index, weights)
    assert found.isfinite().all()


def test_a_prompt_of_mixtral_needs_a_fraction_of_its_weights_beside_them(tmp_path):
    wide = {"hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 2, "num_local_experts": 8}
    config = tiny_config("mixtral", **wide, architectures=["MixtralForCausalLM"], dtype="bfloat16")
    folder = write_config(tmp_path / "mixtral", **config.to_dict())
    need = capture_model(load_source(folder), sequence_length=64, extend_length=1).need
    assert need.scratch < 0.2 * need.weights
