"""Mixtures of experts and attention; Mixtral of transformers and torch's attention are the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import GptOssConfig, MixtralConfig, SwitchTransformersConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.switch_transformers.modeling_switch_transformers import SwitchTransformersTop1Router

from optimum_neuron.errors import ConfigError, NotSupportedError, ShapeError
from optimum_neuron.neuronx_distributed import (
    attention,
    experts,
    layers,
    mixture,
    model_builder,
    moe_options,
    routers,
    sharding,
    simulated,
)

EXPERTS, CHOSEN, HIDDEN, WIDTH = 4, 2, 8, 6


def layer() -> mixture.MoE:
    router = routers.RouterTopK(EXPERTS, CHOSEN, HIDDEN)
    mlps = experts.ExpertMLPs(EXPERTS, CHOSEN, HIDDEN, WIDTH, "silu", True, None, normalize_top_k_affinities=True)
    return mixture.MoE(router, mlps, return_router_logits=True)


@pytest.fixture
def mixtral() -> MixtralSparseMoeBlock:
    torch.manual_seed(0)
    sizes = {"hidden_size": HIDDEN, "intermediate_size": WIDTH, "num_local_experts": EXPERTS}
    block = MixtralSparseMoeBlock(MixtralConfig(**sizes, num_experts_per_tok=CHOSEN))
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return block


def checkpoint(block: MixtralSparseMoeBlock) -> dict[str, torch.Tensor]:
    """A checkpoint of NxD: weights have inputs before outputs."""
    return {
        "router.linear_router.weight": block.gate.weight.detach(),
        "expert_mlps.mlp_op.gate_up_proj.weight": block.experts.gate_up_proj.detach().mT.contiguous(),
        "expert_mlps.mlp_op.down_proj.weight": block.experts.down_proj.detach().mT.contiguous(),
    }


def test_results_and_gradients_are_those_of_mixtral(mixtral: MixtralSparseMoeBlock) -> None:
    tokens = torch.randn(2, 5, HIDDEN)
    ours, theirs = tokens.clone().requires_grad_(), tokens.clone().requires_grad_()
    model = layer()
    model.load_state_dict(checkpoint(mixtral))
    output, logits = model(ours)
    expected = mixtral(theirs.clone())
    torch.testing.assert_close(output, expected)
    weights = torch.randn_like(expected)
    (output * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    down = model.get_parameter("expert_mlps.mlp_op.down_proj.weight")
    torch.testing.assert_close(down.grad, mixtral.experts.down_proj.grad.mT)
    theirs_loss = load_balancing_loss_func((logits.detach(),), EXPERTS, CHOSEN)
    ours_loss = mixture.load_balancing_loss_func(logits.detach(), EXPERTS, CHOSEN)
    torch.testing.assert_close(ours_loss, theirs_loss / CHOSEN)


def test_two_ranks_run_a_mixture(mixtral: MixtralSparseMoeBlock, tmp_path: Path) -> None:
    tokens = torch.randn(2, 5, HIDDEN)
    with simulated.NxDParallelState(world_size=2, tensor_model_parallel_size=2):
        module = layer()
        built = model_builder.ModelBuilder(module).trace(tokens, tag="x").compile(compiler_workdir=tmp_path)
        built.set_weights(sharding.shard_checkpoint(checkpoint(mixtral), module))
    built.to_neuron()
    torch.testing.assert_close(built(tokens)[0], mixtral(tokens))


def test_options_of_experts_are_those_of_gpt_oss() -> None:
    """Its gate and up columns alternate, and NxD's are halves."""
    torch.manual_seed(1)
    config = GptOssConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_local_experts=EXPERTS, swiglu_limit=0.5)
    theirs = GptOssExperts(config)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    options = moe_options.RoutedExpertsMLPOpsConfig(
        EXPERTS,
        HIDDEN,
        WIDTH,
        CHOSEN,
        "sigmoid",
        glu_mlp=True,
        bias=True,
        glu_type="swiglu",
        hidden_act_scaling_factor=1.702,
        hidden_act_bias=1.0,
        gate_clamp_upper_limit=0.5,
        up_clamp_upper_limit=0.5,
        up_clamp_lower_limit=-0.5,
    )
    ours = experts.ExpertMLPsV2(options)
    halves = {name: torch.cat([one[..., ::2], one[..., 1::2]], -1) for name, one in theirs.named_parameters()}
    ours.load_state_dict(
        {
            "mlp_op.gate_up_proj.weight": halves["gate_up_proj"],
            "mlp_op.gate_up_proj.bias": halves["gate_up_proj_bias"],
            "mlp_op.down_proj.weight": theirs.down_proj,
            "mlp_op.down_proj.bias": theirs.down_proj_bias,
        }
    )
    tokens, affinities = torch.randn(7, HIDDEN), torch.rand(7, EXPERTS)
    weights, chosen = affinities.topk(CHOSEN)
    torch.testing.assert_close(ours(tokens, affinities, chosen), theirs(tokens, chosen, weights))


def test_experts_drop_the_tokens_that_switch_transformers_drops() -> None:
    torch.manual_seed(2)
    capacity, scores = 3, torch.randn(12, EXPERTS)
    config = SwitchTransformersConfig(d_model=EXPERTS, num_experts=EXPERTS, expert_capacity=capacity)
    router = SwitchTransformersTop1Router(config)
    torch.nn.init.eye_(router.classifier.weight)
    kept, _, _ = router(scores.unsqueeze(0))
    factor = capacity * EXPERTS / len(scores)
    layer = experts.ExpertMLPs(EXPERTS, 1, HIDDEN, WIDTH, "gelu", False, factor)
    tokens, chosen = torch.randn(12, HIDDEN), scores.argmax(1, keepdim=True)
    is_dropped = kept[0].sum(1) == 0
    assert 0 < int(is_dropped.sum()) < len(scores)
    results = layer(tokens, torch.ones(12, EXPERTS), chosen)
    assert torch.equal(results.abs().sum(1) == 0, is_dropped)
    mask = (torch.arange(12) != 4).int()
    assert bool((layer(tokens, torch.ones(12, EXPERTS), chosen, padding_mask=mask)[4] == 0).all())


def test_scripts_draw_weights_of_experts_as_of_parallel_layers() -> None:
    torch.manual_seed(3)
    mlps = experts.ExpertMLPs(EXPERTS, CHOSEN, HIDDEN, WIDTH, "silu", True, None)
    first, last = mlps.mlp_op.gate_up_proj, mlps.mlp_op.down_proj
    assert isinstance(first, layers.ColumnParallelLinear) and isinstance(last, layers.RowParallelLinear)
    torch.manual_seed(3)
    before = [one.weight.detach().clone() for one in (first, last)]
    for one, weight in zip((first, last), before, strict=True):
        one.weight.data.fill_(torch.nan)
        one.init_weight_cpu()
        assert torch.equal(one.weight, weight)


def test_wrong_mixtures() -> None:
    mlps = layer().expert_mlps
    for make, error in (
        (lambda: routers.RouterTopK(2, 3, HIDDEN), ConfigError),
        (lambda: routers.RouterTopK(2, 1, HIDDEN, act_fn="relu"), ConfigError),
        (lambda: experts.ExpertMLPs(4, 1, HIDDEN, WIDTH, "silu", True, None, return_bias=True), NotSupportedError),
        (lambda: experts.ExpertMLPs(4, 1, HIDDEN, WIDTH, "silu", True, None, blok_size=1), ConfigError),
        (lambda: experts.ExpertMLPs(4, 1, HIDDEN, WIDTH, "silu", True, None, glu_type="other"), ConfigError),
        (lambda: experts.ExpertMLPs(4, 1, HIDDEN, WIDTH, "other", True, None), ConfigError),
        (lambda: mixture.MoE(routers.RouterTopK(3, 2, HIDDEN), mlps), ConfigError),
        (lambda: mixture.MoE(layer().router, mlps, token_shuffle_group_size=2), ConfigError),
        (lambda: mixture.MoE(layer().router, mlps, init_tkg_module=True), NotSupportedError),
    ):
        with pytest.raises(error):
            make()


@pytest.mark.parametrize("is_transposed", [False, True])
def test_attention_is_that_of_torch(is_transposed: bool) -> None:
    q, k, v = (torch.randn(2, heads, 7, 4, requires_grad=True) for heads in (4, 2, 2))
    own = [one.transpose(-1, -2) if is_transposed else one for one in (q, k, v)]
    found = attention.nki_flash_attn_func(*own, softmax_scale=0.3, transpose_nki_inputs=is_transposed)
    scores = q @ k.repeat_interleave(2, 1).mT * 0.3
    scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -torch.inf)
    expected = F.softmax(scores, -1) @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad(found.square().sum(), (q, k, v))
    torch.testing.assert_close(ours, torch.autograd.grad(expected.square().sum(), (q, k, v)))
    with pytest.raises(ShapeError):
        attention.nki_flash_attn_func(q, k[:, :1].expand(2, 3, 7, 4), v, transpose_nki_inputs=False)
    with pytest.raises(NotSupportedError):
        attention.nki_flash_attn_func(q, k, v, dropout_p=0.1, seed=torch.zeros(1, dtype=torch.int32))
