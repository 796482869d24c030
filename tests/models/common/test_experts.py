"""Mixtures of experts against transformers' modules in float32, for few tokens and for many."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import DeepseekV3Config, GptOssConfig, Llama4TextConfig, MixtralConfig, Qwen2MoeConfig, Qwen3MoeConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP
from transformers.models.llama4.modeling_llama4 import Llama4TextMoe
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from optimum_neuron.models.common import DecoderConfig, Mixture, MixtureConfig, Norm, run_experts

HIDDEN, WIDTH, SHARED = 16, 12, 20
SIZES = {"hidden_size": HIDDEN, "moe_intermediate_size": WIDTH, "num_experts_per_tok": 2}
DECODER = DecoderConfig(
    hidden_size=HIDDEN,
    num_heads=1,
    num_kv_heads=1,
    head_dim=HIDDEN,
    intermediate_size=WIDTH,
    vocab_size=8,
    layers=(),
    norm=Norm(eps=1e-6),
)
OURS = {"num_experts": 8, "experts_per_token": 2, "intermediate_size": WIDTH}


def deepseek_sizes(**more):
    return SIZES | {"n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2} | more


DEEPSEEK = OURS | {
    "score": "sigmoid",
    "scale": 2.5,
    "num_groups": 4,
    "groups_per_token": 2,
    "correction_bias": True,
    "shared_size": 2 * WIDTH,
}
GPT_OSS = OURS | {
    "is_normalized": True,
    "router_bias": True,
    "bias": True,
    "is_transposed": True,
    "is_interleaved": True,
    "activation_limit": 0.5,
    "activation_alpha": 1.702,
}
LLAMA4 = {"score": "sigmoid", "weighs_input": True, "is_transposed": True, "shared_size": WIDTH}
CASES = {
    "mixtral": (
        lambda: MixtralSparseMoeBlock(
            MixtralConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_local_experts=8, num_experts_per_tok=2)
        ),
        OURS | {"is_normalized": True},
    ),
    "qwen3": (lambda: Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**SIZES, num_experts=8, norm_topk_prob=False)), OURS),
    "qwen3, normalized": (
        lambda: Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(**SIZES, num_experts=8, norm_topk_prob=True)),
        OURS | {"is_normalized": True},
    ),
    "qwen2": (
        lambda: Qwen2MoeSparseMoeBlock(
            Qwen2MoeConfig(**SIZES, num_experts=8, shared_expert_intermediate_size=SHARED, norm_topk_prob=False)
        ),
        OURS | {"shared_size": SHARED, "shared_gate": True},
    ),
    "gpt_oss": (
        lambda: GptOssMLP(
            GptOssConfig(
                hidden_size=HIDDEN,
                intermediate_size=WIDTH,
                num_local_experts=8,
                num_experts_per_tok=2,
                swiglu_limit=0.5,
            )
        ),
        GPT_OSS,
    ),
    "deepseek_v3": (
        lambda: DeepseekV3MoE(DeepseekV3Config(**deepseek_sizes(norm_topk_prob=True))),
        DEEPSEEK | {"is_normalized": True},
    ),
    "deepseek_v3, not normalized": (
        lambda: DeepseekV3MoE(DeepseekV3Config(**deepseek_sizes(norm_topk_prob=False))),
        DEEPSEEK,
    ),
    "llama4": (
        lambda: Llama4TextMoe(
            Llama4TextConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_local_experts=8, num_experts_per_tok=1)
        ),
        OURS | LLAMA4 | {"experts_per_token": 1},
    ),
    "llama4, two experts": (
        lambda: Llama4TextMoe(
            Llama4TextConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_local_experts=8, num_experts_per_tok=2)
        ),
        OURS | LLAMA4,
    ),
}

NAMES = {"shared_expert_gate": "shared_gate", "shared_expert": "shared", "shared_experts": "shared", "gate": "router"}
LEAVES = {"e_score_correction_bias": "correction"}


def our_state(original):
    """The state of a mixture of transformers under the names of `Mixture`."""
    state = {}
    for name, tensor in original.state_dict().items():
        first, _, rest = name.partition(".")
        state[f"{NAMES.get(first, first)}.{LEAVES.get(rest, rest)}"] = tensor
    if "shared.gate_proj.weight" in state:
        parts = [state.pop(f"shared.{part}_proj.weight") for part in ("gate", "up")]
        state["shared.gate_up.weight"] = torch.cat(parts)
        state["shared.down.weight"] = state.pop("shared.down_proj.weight")
    return state


@pytest.fixture(params=CASES)
def pair(request):
    make, options = CASES[request.param]
    torch.manual_seed(0)
    original = make().eval()
    with torch.no_grad():
        for tensor in (*original.parameters(), *original.buffers()):
            tensor.normal_(0, 0.5)
    mixture = Mixture(DECODER, MixtureConfig(**options)).eval()
    mixture.load_state_dict(our_state(original), assign=True)
    return original, mixture


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 9)], ids=["one token", "three rows", "a prompt"])
def test_results_are_those_of_transformers(pair, shape):
    original, mixture = pair
    x_BTD = torch.randn(*shape, HIDDEN)
    with torch.no_grad():
        expected = original(x_BTD)
        actual = mixture(x_BTD)
    expected = (expected[0] if isinstance(expected, tuple) else expected).view_as(x_BTD)
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_tokens", [1, 9])
def test_experts_of_two_cores_add_up(pair, num_tokens):
    _, mixture = pair
    experts = mixture.experts
    x_ND = torch.randn(num_tokens, HIDDEN)
    with torch.no_grad():
        index_NK, weight_NK = mixture.router(x_ND)
        expected, total = experts(x_ND, index_NK, weight_NK), torch.zeros_like(x_ND)
        whole = dict(experts.named_parameters())
        experts.num_experts = 4
        for first in (0, 4):
            for name, tensor in whole.items():
                setattr(experts, name, nn.Parameter(tensor[first : first + 4]))
            total += experts(x_ND, index_NK - first, weight_NK)
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)


def test_an_expert_that_overflows_does_not_touch_tokens_that_did_not_choose_it(pair):
    _, mixture = pair
    x_ND = torch.randn(9, HIDDEN)
    index_NK, weight_NK = torch.zeros(9, 1, dtype=torch.int64), torch.ones(9, 1)
    options = {"weighs_input": mixture.experts.config.weighs_input}
    with torch.no_grad():
        expected = run_experts(mixture.experts, x_ND, index_NK, weight_NK, **options)
        mixture.experts.gate_up_proj[1:] = float("inf")
        actual = run_experts(mixture.experts, x_ND, index_NK, weight_NK, **options)
    assert torch.equal(actual, expected)
