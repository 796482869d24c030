"""Routers: transformers' and the sums of Sinkhorn's algorithm are the reference; Llama's MLP for shared experts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import DeepseekV3Config, LlamaConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.llama.modeling_llama import LlamaMLP

from optimum_neuron.errors import ConfigError, NotSupportedError, NumericsError
from optimum_neuron.neuronx_distributed import (
    experts,
    mixture,
    model_builder,
    routers,
    sharding,
    shared_experts,
    simulated,
)

HIDDEN = 8


def test_training_gives_every_expert_equally_many_tokens() -> None:
    torch.manual_seed(0)
    scores = torch.randn(12, 4)
    weights = routers.balanced(scores, 100, tol=1e-6)
    torch.testing.assert_close(weights.sum(1), torch.full((12,), 1 / 12), atol=1e-4, rtol=0)
    torch.testing.assert_close(weights.sum(0), torch.full((4,), 1 / 4), atol=1e-4, rtol=0)
    ratios = weights.log() - scores  # rows and columns are scaled, and nothing else
    torch.testing.assert_close(
        ratios - ratios[:1] - ratios[:, :1] + ratios[0, 0], torch.zeros(12, 4), atol=1e-4, rtol=0
    )
    assert routers.balanced(scores, 0) is scores
    with pytest.raises(NumericsError):
        routers.balanced(scores, 1, tol=1e-6)


def test_sinkhorn_chooses_the_largest_in_inference() -> None:
    router, tokens = routers.RouterSinkhorn(4, 1, HIDDEN), torch.randn(5, HIDDEN)
    logits, affinities, chosen = router.eval()(tokens)
    torch.testing.assert_close(affinities, F.linear(tokens, router.linear_router.weight).sigmoid())
    assert torch.equal(chosen[:, 0], logits.argmax(1))
    _, _, balanced = router.train()(tokens)
    assert torch.equal(balanced[:, 0], routers.balanced(logits.detach(), 30).argmax(1))


def test_groups_limit_experts_as_in_deepseek() -> None:
    torch.manual_seed(1)
    sizes = {"n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2}
    theirs = DeepseekV3TopkRouter(
        DeepseekV3Config(hidden_size=HIDDEN, norm_topk_prob=False, routed_scaling_factor=1.0, **sizes)
    )
    torch.nn.init.normal_(theirs.weight)
    theirs.e_score_correction_bias.uniform_(0, 0.3)
    ours = routers.GroupLimitedRouter(8, 3, HIDDEN, n_group=4, topk_group=2)
    with torch.no_grad():
        ours.linear_router.weight.copy_(theirs.weight)
        ours.e_score_correction_bias.copy_(theirs.e_score_correction_bias)
    tokens = torch.randn(64, HIDDEN)
    _, affinities, chosen = ours(tokens)
    *_, weights, expected = theirs(tokens)
    torch.testing.assert_close(chosen.sort(1).values, expected.sort(1).values)
    by_expert = torch.zeros(64, 8).scatter(1, expected, weights)
    torch.testing.assert_close(affinities.gather(1, chosen), by_expert.gather(1, chosen))


@pytest.mark.parametrize("is_fused", [False, True])
def test_two_ranks_divide_shared_experts(is_fused: bool, tmp_path: Path) -> None:
    torch.manual_seed(2)
    mlp = LlamaMLP(LlamaConfig(hidden_size=HIDDEN, intermediate_size=12, num_attention_heads=2))
    weights = {name: value.detach() for name, value in mlp.state_dict().items()}
    if is_fused:
        both = [weights.pop("gate_proj.weight"), weights.pop("up_proj.weight")]
        weights["gate_up_proj.weight"] = torch.cat(both)
    tokens = torch.randn(2, 5, HIDDEN)
    with simulated.NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        module = shared_experts.SharedExperts(HIDDEN, 6, 2, "silu", fused_gate_up_projection=is_fused)
        built = model_builder.ModelBuilder(module).trace(tokens, tag="x").compile(compiler_workdir=tmp_path)
        built.set_weights(sharding.shard_checkpoint(weights, module))
    built.to_neuron()
    torch.testing.assert_close(built(tokens), mlp(tokens), atol=1e-5, rtol=1e-5)


def test_a_mixture_adds_shared_experts() -> None:
    tokens, mlps = torch.randn(3, HIDDEN), experts.ExpertMLPs(4, 1, HIDDEN, 6, "silu", True, None)
    router, shared = routers.RouterSinkhorn(4, 1, HIDDEN), shared_experts.SharedExperts(HIDDEN, 6, 1, "gelu")
    (both,) = mixture.MoE(router, mlps, shared).eval()(tokens)
    (alone,) = mixture.MoE(router, mlps).eval()(tokens)
    torch.testing.assert_close(both, alone + shared(tokens))


def test_wrong_routers() -> None:
    for make, error in (
        (lambda: routers.RouterSinkhorn(4, 2, HIDDEN), NotSupportedError),
        (lambda: routers.GroupLimitedRouter(8, 3, HIDDEN, n_group=3, topk_group=2), ConfigError),
        (lambda: routers.GroupLimitedRouter(8, 3, HIDDEN, n_group=4, topk_group=1), ConfigError),
        (lambda: shared_experts.SharedExperts(HIDDEN, 6, 1, "other"), ConfigError),
    ):
        with pytest.raises(error):
            make()
