"""Any architecture through transformers' own code: what it caches, what it masks, which token it answers."""

from __future__ import annotations

import pytest
import torch
import transformers
from packaging.version import Version
from transformers.models.bloom import modeling_bloom

from optimum_neuron.errors import CaptureError
from optimum_neuron.models import build_decoder, key_value_state
from optimum_neuron.models.generic import build, probe_states
from tests.models.steps import NUM_COLUMNS, check_steps, masks_of, pair
from tests.tiny import VOCABULARY, tiny_config

GPT = {"n_embd": 32, "n_layer": 3, "n_head": 4}
LATENT = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "kv_lora_rank": 8, "q_lora_rank": 8}
LATENT |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
LATENT |= {"num_key_value_heads": 4, "moe_intermediate_size": 16, "first_k_dense_replace": 3}
"""Multi-head latent attention: a latent of kv_lora_rank and one rotated key are cached."""

CACHES = {
    "every head its own": ("gpt2", {}, (4, 8, 8)),
    "grouped": ("llama", {}, (2, 8, 8)),
    "one key head": ("gpt_bigcode", GPT | {"multi_query": True}, (1, 8, 8)),
    "head width of its own": ("qwen3", {"head_dim": 16}, (2, 16, 16)),
    "experts": ("mixtral", {}, (2, 8, 8)),
    "fused projections": ("phi3", {}, (2, 8, 8)),
    "values of another width": ("deepseek_v3", LATENT, (1, 8, 4)),
}


@pytest.mark.parametrize(("model_type", "overrides", "wanted"), CACHES.values(), ids=CACHES)
def test_the_cache_of_every_layer_is_found_without_weights(model_type, overrides, wanted):
    decoder = build(tiny_config(model_type, **overrides))
    before = dict(decoder.named_parameters())
    assert probe_states(decoder) == [key_value_state(*wanted)] * 3
    after = dict(decoder.named_parameters())
    assert after.keys() == before.keys() and all(after[name] is before[name] for name in before)
    assert {parameter.device.type for parameter in before.values()} == {"meta"}


def test_layers_that_are_not_alike_are_probed_one_by_one():
    decoder = build(tiny_config("gemma3_text"))
    assert probe_states(decoder) == [key_value_state(2, 8, 8)] * 4


def test_each_layer_has_its_own_widths_and_one_that_shares_another_cache_has_none():
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    gemma4 = {"num_hidden_layers": 6, "layer_types": kinds, "head_dim": 8, "global_head_dim": 16}
    decoder = build(tiny_config("gemma4_text", **gemma4, num_kv_shared_layers=0, hidden_size_per_layer_input=0))
    narrow, wide = key_value_state(2, 8, 8), key_value_state(2, 16, 16)
    assert probe_states(decoder) == [narrow, narrow, wide] * 2
    decoder = build(tiny_config("gemma4_text", **gemma4, num_kv_shared_layers=2, hidden_size_per_layer_input=0))
    assert probe_states(decoder) == [narrow, narrow, wide, narrow, (), ()]


def masks(model_type, positions, num_keys, **overrides):
    return masks_of(build(tiny_config(model_type, **overrides)), positions, num_keys)


def test_a_query_sees_the_slots_up_to_its_own_position():
    mask = masks("llama", [[0, 2], [3, 1]], 4)
    assert mask.shape == (2, 1, 2, 4)
    assert mask[:, 0].int().tolist() == [[[1, 0, 0, 0], [1, 1, 1, 0]], [[1, 1, 1, 1], [1, 1, 0, 0]]]


def test_a_window_cuts_what_is_too_far_back():
    mask = masks("mistral", [[0, 3]], 5, sliding_window=2)
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0, 0], [0, 0, 1, 1, 0]]


def test_mixed_layers_get_a_mask_for_each_kind():
    found = masks("gemma3_text", [[3]], 5, sliding_window=2)
    assert found.keys() == {"full_attention", "sliding_attention"}
    assert found["full_attention"].flatten().tolist() == [True] * 4 + [False]
    assert found["sliding_attention"].flatten().tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(("kind", "num_seen"), [("full_attention", 4), ("sliding_attention", 2)])
def test_layers_of_one_kind_get_one_mask(kind, num_seen):
    found = masks("gemma3_text", [[3]], 5, sliding_window=2, layer_types=[kind] * 4)
    assert int(found.sum()) == num_seen


ARCHITECTURES = {
    **dict.fromkeys(("gpt2", "gpt_neox", "opt", "llama", "phi3", "qwen3", "granite"), {}),
    "gemma3_text": {"sliding_window": 4},
    "gpt_bigcode": GPT | {"multi_query": True},
    "deepseek_v3": LATENT,
}


BART = {"d_model": 32, "decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
GPTJ_ATTENTION = "sdpa" if Version(transformers.__version__) >= Version("5.24.0") else "eager"
XGLM = {"d_model": 32, "num_layers": 3, "attention_heads": 4, "ffn_dim": 64}
OTHERS = {
    # No scaled dot product attention in transformers.
    "gemma2": ({"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8}, "eager"),
    "gpt_oss": (
        {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4}
        | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
        "eager",
    ),
    # Since 5.24, transformers has fused attention for both.
    "gptj": (GPT | {"rotary_dim": 4}, GPTJ_ATTENTION),
    "codegen": (GPT | {"rotary_dim": 4}, GPTJ_ATTENTION),
    "xglm": (XGLM, "eager"),
    # A window that is cut by the length of the cache.
    "gpt_neo": ({"num_hidden_layers": 4, "attention_types": [[["global", "local"], 2]], "window_size": 4}, "eager"),
    # Biases of ALiBi, built from a mask of two dimensions.
    "bloom": ({"n_layer": 3, "n_head": 4}, "eager"),
    "mpt": ({"d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 32}, "eager"),
    "falcon": ({"alibi": True, "new_decoder_architecture": False}, "sdpa"),
    # Positions that are counted in the cache, of a decoder as deep as its encoder is not.
    "bart": (BART | {"encoder_layers": 2}, "sdpa"),
    "mbart": (BART, "sdpa"),
    "pegasus": (BART, "sdpa"),
    "marian": (BART | {"decoder_start_token_id": 0}, "sdpa"),
    "blenderbot": (BART, "sdpa"),
}


@pytest.mark.full(days=4)
@pytest.mark.parametrize("model_type", OTHERS)
def test_decoders_with_ways_of_their_own_are_exact_too(model_type):
    overrides, attention = OTHERS[model_type]
    models = pair(model_type, family="generic", **overrides)
    assert models.family.attention.value == attention and models.family.attention.reason
    check_steps(models)


def test_masks_of_eager_attention_are_added():
    decoder = build(tiny_config("xglm", **XGLM))
    assert [choice.candidate for choice in decoder.attention.rejected] == ["sdpa"]
    low = torch.finfo(torch.float32).min
    assert masks_of(decoder, [[1]], 3).flatten().tolist() == [0.0, 0.0, low]


def test_patches_do_not_stay():
    before = modeling_bloom.build_alibi_tensor
    for model_type, overrides in (("bloom", {"n_layer": 3, "n_head": 4}), ("bart", BART)):
        models = pair(model_type, family="generic", **overrides)
        models.run(torch.tensor([[3]] * 2), torch.tensor([[0]] * 2), models.new_states(), num_slots=None)
        assert modeling_bloom.build_alibi_tensor is before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in models.family.module.modules())


def test_a_model_that_cannot_keep_what_it_computed_is_refused():
    with pytest.raises(CaptureError) as refused:
        build_decoder(tiny_config("xlm"), dtype="float32")
    assert refused.value.details["model_type"] == "xlm"


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_prompt_decode_and_extend_give_the_logits_of_transformers(model_type):
    models = pair(model_type, family="generic", **ARCHITECTURES[model_type])
    assert models.family.choice.value == "generic"
    check_steps(models)


def test_the_head_answers_the_asked_token_of_each_row_and_works_on_one_token_only():
    models = pair("gpt2", family="generic")
    ids, positions = torch.randint(3, VOCABULARY, (2, NUM_COLUMNS)), torch.arange(NUM_COLUMNS).expand(2, -1)
    head, shapes = models.family.module.model.get_output_embeddings(), []
    handle = head.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    picked = models.run(ids, positions, models.new_states(), num_slots=None, last_index_B=torch.tensor([4, 7]))
    every = models.run(ids, positions, models.new_states(), num_slots=None)
    handle.remove()
    assert shapes == [(2, 1, VOCABULARY), (2, NUM_COLUMNS, VOCABULARY)]
    torch.testing.assert_close(picked[:, 0], torch.stack([every[0, 4], every[1, 7]]))
    assert not head._forward_pre_hooks and not head._forward_hooks, "hooks do not stay"


def test_hooks_do_not_stay_after_an_error():
    models = pair("gpt2", family="generic")
    head = models.family.module.model.get_output_embeddings()
    with pytest.raises((IndexError, RuntimeError)):
        models.run(torch.tensor([[VOCABULARY + 5]] * 2), torch.tensor([[0]] * 2), models.new_states(), num_slots=None)
    assert not head._forward_pre_hooks and not head._forward_hooks


def test_cuts_name_the_head_and_sources_the_checkpoints_tensors():
    family = build_decoder(tiny_config("gpt2"), dtype="bfloat16", family="generic")
    (cut,) = family.module.cuts
    assert family.module.get_submodule(cut) is family.module.model.get_output_embeddings()
    assert family.weight_sources["model.transformer.h.0.attn.c_attn.weight"] == ("transformer.h.0.attn.c_attn.weight",)
    assert {parameter.dtype for parameter in family.module.parameters()} == {torch.bfloat16}


def test_the_configuration_that_is_passed_is_not_changed():
    config = tiny_config("mixtral")
    before = config.to_json_string()
    build(config)
    assert config.to_json_string() == before
