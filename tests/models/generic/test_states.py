"""States that tokens change: convolutions, recurrences, and linear attention, with padding, turns, and beams."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM

from optimum_neuron import NeuronModelForCausalLM
from optimum_neuron.errors import CaptureError, ConfigError, ModelError
from optimum_neuron.models import build_decoder
from optimum_neuron.models.generic import build
from optimum_neuron.models.generic.recurrences import linear_recurrence
from optimum_neuron.upstream.cache_argument import CACHE
from tests.models.steps import check_steps, masks_of, pair
from tests.tiny import SHAPES, save_tiny, tiny_config

pytestmark = pytest.mark.full(days=2, by="file")

MIXED = {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
SSM = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 2, "mamba_chunk_size": 8}
DELTA = {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_value_heads": 4} | MIXED
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
CONVOLUTIONS = {"layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3}
ZAMBA = {"num_key_value_heads": 4, "mamba_d_state": 8, "layers_block_type": ["linear_attention", "hybrid"] * 2}
ZAMBA |= {"num_hidden_layers": 4}
NEMOTRON = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2, "chunk_size": 8}
NEMOTRON |= {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "moe_shared_expert_intermediate_size": 16}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}

CASES = {
    "lfm2": {"conv_bias": True},
    "lfm2_moe": CONVOLUTIONS | EXPERTS | {"num_experts": 4, "num_dense_layers": 1},
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "falcon_mamba": {"state_size": 8, "time_step_rank": 4},
    "mamba2": {"num_heads": 4, "head_dim": 16, "state_size": 8, "n_groups": 2, "chunk_size": 8},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "mamba_d_state": 8, "mamba_dt_rank": 4},
    "bamba": SSM | {"attn_layer_indices": [1]},
    "falcon_h1": SSM | {"mamba_d_ssm": 64, "head_dim": 8},
    "granitemoehybrid": SSM
    | MIXED
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 32},
    "nemotron_h": NEMOTRON
    | EXPERTS
    | {"layers_block_type": ["linear_attention", "full_attention", "moe", "mlp"], "head_dim": 8},
    "zamba": ZAMBA | {"n_mamba_heads": 2, "attention_head_dim": 16, "mamba_dt_rank": 4},
    "zamba2": ZAMBA | {"mamba_ngroups": 1, "n_mamba_heads": 4, "chunk_size": 8, "adapter_rank": 4, "num_mem_blocks": 1},
    "qwen3_next": {},
    "qwen3_5_text": DELTA | {"linear_num_key_heads": 2, "head_dim": 8},
    "olmo_hybrid": DELTA | {"linear_num_key_heads": 4},
    "kimi_linear": MIXED
    | LATENT
    | EXPERTS
    | {"linear_num_heads": 4, "linear_head_dim": 8, "num_local_experts": 4, "num_key_value_heads": 4}
    | {"n_group": 1, "topk_group": 1},
    "minimax": MIXED | {"block_size": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
    "zaya": {"num_experts_per_tok": 1, "num_experts": 4, "head_dim": 8, "router_hidden_size": 16, "sliding_window": 4}
    | {"moe_intermediate_size": 32, "layer_types": ["hybrid", "hybrid_sliding", "hybrid"]},
    "rwkv": {"rescale_every": 2},
    "recurrent_gemma": {"attention_window_size": 8, "lru_width": 32, "block_types": ["recurrent", "attention"]}
    | {"num_key_value_heads": 1},
}
"""Model type to sizes of its states; chunks are shorter than prompts, so that several of them run."""


@pytest.mark.full(days=7)
@pytest.mark.parametrize("model_type", CASES)
def test_prompts_steps_and_chunks_are_those_of_transformers(model_type):
    models = pair(model_type, family="generic", **CASES[model_type])
    assert models.family.choice.value == "generic" and models.family.counts_tokens
    assert models.weights  # copied before RWKV's own code rescales them
    check_steps(models, atol=1e-4)


def test_attention_of_minimax_has_a_window_beside_its_states():
    models = pair("minimax", **CASES["minimax"], sliding_window=4)
    assert models.family.windows.value == "ring"
    check_steps(models, atol=1e-4)


COMPILED = ("lfm2", "mamba2", "jamba", "qwen3_next", "minimax", "rwkv")
"""One of each kind, through every graph: validation compares them at the export, chunks and padded rows too."""

PROMPTS = torch.tensor([[5, 6, 7, 8, 9], [0, 0, 3, 4, 5]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
MORE = torch.tensor([[11, 12, 13], [14, 15, 16]])


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.full(days=6, by="models")) for name in COMPILED]
)
def models(request, tmp_path_factory):
    """The compiled model and transformers' own."""
    folder = save_tiny(tmp_path_factory.mktemp(request.param), request.param, **CASES[request.param])
    buckets = {"prefill_buckets": (16,), "decode_buckets": (48,)}
    compiled = NeuronModelForCausalLM.from_pretrained(folder, **SHAPES | buckets)
    return compiled, AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def wanted(original, ids, num_tokens, **options):
    """Tokens of one sequence, read without padding."""
    found = original.generate(ids[None], max_new_tokens=num_tokens, do_sample=False, **options)
    return found[0, len(ids) :]


@pytest.mark.full(days=10)
def test_padded_rows_go_on_for_several_turns(models):
    compiled, original = models
    options = {"do_sample": False, "return_dict_in_generate": True, "min_new_tokens": 8, "max_new_tokens": 8}
    first = compiled.generate(PROMPTS, attention_mask=MASK, **options)
    ids = torch.cat((first.sequences, MORE), 1)
    mask = torch.cat((MASK, torch.ones(2, ids.shape[1] - 5, dtype=torch.int64)), 1)
    second = compiled.generate(ids, attention_mask=mask, **{CACHE: first[CACHE]}, **options)
    for row in range(2):
        own = PROMPTS[row][MASK[row] == 1]
        answer = wanted(original, own, 8, min_new_tokens=8)
        assert torch.equal(first.sequences[row, 5:], answer)
        own = torch.cat((own, answer, MORE[row]))
        assert torch.equal(second.sequences[row, ids.shape[1] :], wanted(original, own, 8, min_new_tokens=8))


def test_beams_exchange_their_states(models):
    compiled, original = models
    if original.config.model_type in ("minimax", "rwkv"):
        pytest.skip("transformers does not reorder the states of its own cache of this model")
    options = {"num_beams": 3, "min_new_tokens": 8}
    found = compiled.generate(PROMPTS, attention_mask=MASK, max_new_tokens=8, do_sample=False, **options)
    for row in range(2):
        assert torch.equal(found[row, 5:], wanted(original, PROMPTS[row][MASK[row] == 1], 8, **options))


def test_a_state_cannot_forget_tokens(models):
    compiled, _ = models
    cache = compiled(PROMPTS, attention_mask=MASK)[CACHE]
    assert not cache.is_croppable
    lookup = {"attention_mask": MASK[:1], "prompt_lookup_num_tokens": 2, "max_new_tokens": 4}
    for call in (lambda: cache.crop(-1), lambda: compiled.generate(PROMPTS[:1], **lookup)):
        with pytest.raises(ConfigError) as error:
            call()
        assert {name.partition("_")[0] for name in error.value.details["states"]} <= {"conv", "recurrent"}


def test_states_are_as_large_as_the_layers_say():
    family = build_decoder(tiny_config("falcon_h1", **CASES["falcon_h1"]), dtype="bfloat16")
    tensors = {tensor.name: tensor for tensor in family.states[0]}
    assert tensors["key_cache"].shape(2, 48) == (2, 2, 8, 48) and tensors["key_cache"].dtype is None
    assert tensors["conv_state"].shape(2, 48) == (2, 96, 3) and not tensors["conv_state"].has_slots
    # Rounding a state at each step would add up.
    assert tensors["recurrent_state"].shape(2, 48) == (2, 4, 16, 8) and tensors["recurrent_state"].dtype == "float32"


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_a_linear_recurrence_is_that_of_a_loop(length):
    generator = torch.Generator().manual_seed(0)
    decay, added = (torch.rand(2, length, 3, generator=generator) for _ in range(2))
    state = torch.rand(2, 3, generator=generator)
    found = linear_recurrence(decay, added, state)
    for step in range(length):
        state = decay[:, step] * state + added[:, step]
        torch.testing.assert_close(found[:, step], state)


def test_a_recurrence_of_unknown_kind_is_refused(monkeypatch):
    from optimum_neuron.models.generic import scans

    monkeypatch.delitem(scans._SCANS, "mamba_selective_scan")
    with pytest.raises(CaptureError) as error:
        build_decoder(tiny_config("mamba", **CASES["mamba"]), dtype="float32")
    assert error.value.details["model"] == "MambaForCausalLM"


def test_layers_with_such_states_are_not_divided_among_cores():
    with pytest.raises(ModelError) as error:
        build_decoder(tiny_config("qwen3_5_text", **CASES["qwen3_5_text"]), dtype="float32", group_size=2)
    assert error.value.details["layer_types"] == ["linear_attention"]


def test_layers_without_attention_take_no_mask():
    assert masks_of(build(tiny_config("mamba2", **CASES["mamba2"])), [[0]], 4) is None
