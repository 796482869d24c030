"""Every family against transformers in float32: all options of its checkpoints, and its map of weights."""

from __future__ import annotations

import collections

import pytest
import torch

from optimum_neuron.models import build_decoder, families, persistent_buffers
from tests.models.mixtures import MIXTURES
from tests.models.steps import NUM_COLUMNS, NUM_TOKENS, check_steps, pair
from tests.tiny import tiny_config

ROPE = {"rope_theta": 10_000.0, "factor": 4.0}
YARN = ROPE | {"rope_type": "yarn", "original_max_position_embeddings": 16}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}

FAMILIES = {
    "llama": {
        "llama": ("llama", {}),
        "tied": ("llama", {"tie_word_embeddings": True}),
        "every bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
        "every head its own": ("llama", {"num_key_value_heads": 4}),
        "one key head": ("llama", {"num_key_value_heads": 1}),
        "wide heads": ("llama", {"head_dim": 16}),
        "large epsilon": ("llama", {"rms_norm_eps": 0.1}),
        "gelu": ("llama", {"hidden_act": "gelu"}),
        "theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}),
        "linear scaling": ("llama", {"rope_parameters": ROPE | {"rope_type": "linear"}}),
        "llama3 scaling": ("llama", {"rope_parameters": LLAMA3}),
        "yarn scaling": ("llama", {"rope_parameters": YARN}),
        "mistral": ("mistral", {"sliding_window": None}),
        "sliding window": ("mistral", {"sliding_window": 4}),
        "window of one": ("mistral", {"sliding_window": 1}),
        "wide window": ("mistral", {"sliding_window": 64}),
    },
    **MIXTURES,
}
"""Family, then what a case shows, then model type and options."""

CASES = [
    pytest.param(family, model_type, options, id=f"{family}: {what}")
    for family, cases in FAMILIES.items()
    for what, (model_type, options) in cases.items()
]


def test_every_family_and_model_type_is_in_the_table():
    assert FAMILIES.keys() == families().keys()
    for name, module in families().items():
        assert {model_type for model_type, _ in FAMILIES[name].values()} == set(module.MODEL_TYPES)


@pytest.mark.parametrize(("family", "model_type", "overrides"), CASES)
def test_prompt_decode_and_extend_give_the_logits_of_transformers(family, model_type, overrides):
    models = pair(model_type, **overrides)
    assert models.family.choice.value == family
    check_steps(models)


@pytest.mark.parametrize(("family", "model_type", "overrides"), CASES)
def test_every_tensor_is_used_once_and_every_parameter_has_a_source(family, model_type, overrides):
    models = pair(model_type, **overrides)
    tied = models.original.config.tie_word_embeddings
    tensors = {name for name in models.original.state_dict() if not (tied and name == "lm_head.weight")}
    used = collections.Counter(source for sources in models.family.weight_sources.values() for source in sources)
    assert used == dict.fromkeys(tensors, 1)
    module = models.family.module
    parameters = dict((*module.named_parameters(), *persistent_buffers(module)))
    assert models.family.weight_sources.keys() == parameters.keys()
    assert all(models.weights[name].shape == parameter.shape for name, parameter in parameters.items())
    assert (models.family.module.head.weight is models.family.module.embed.weight) == tied


def test_what_lies_beyond_the_window_has_no_influence_and_what_lies_in_it_has():
    models = pair("mistral", sliding_window=4, num_hidden_layers=1)
    ids = torch.randint(3, 90, (2, NUM_COLUMNS))
    positions = torch.arange(NUM_COLUMNS).expand(2, -1)

    def last_logits(ids):
        return models.run(ids, positions, models.new_states(), num_slots=None)[0, -1]

    far, near = ids.clone(), ids.clone()
    far[:, NUM_COLUMNS - 5] += 1
    near[:, NUM_COLUMNS - 4] += 1
    assert torch.equal(last_logits(far), last_logits(ids))
    assert not torch.equal(last_logits(near), last_logits(ids))


def test_slots_of_padding_and_of_later_tokens_are_not_seen():
    models = pair("llama")
    ids, positions = torch.randint(3, 90, (2, 1)), torch.tensor([[5], [5]])
    clean, dirty = models.new_states(), models.new_states()
    filled = torch.randint(3, 90, (2, NUM_COLUMNS)), torch.arange(NUM_COLUMNS).expand(2, -1)
    models.run(*filled, dirty, num_slots=None)
    models.run(filled[0][:, :5], filled[1][:, :5], clean, num_slots=None)
    found = [models.run(ids, positions, states, num_slots=NUM_TOKENS) for states in (clean, dirty)]
    torch.testing.assert_close(*found)


def test_logits_are_float32_and_the_cache_takes_the_weights_dtype():
    family = build_decoder(tiny_config("llama"), dtype="bfloat16")
    assert {parameter.dtype for parameter in family.module.parameters()} == {torch.bfloat16}
    assert {parameter.device.type for parameter in family.module.parameters()} == {"meta"}
    assert family.module.inv_freq_0.dtype == torch.float32 and family.module.inv_freq_0.device.type == "cpu"
    assert [(s.num_heads, s.key_width, s.value_width) for s in family.state_shapes] == [(2, 8, 8)] * 3
    assert family.module.head(torch.ones(1, 32, dtype=torch.bfloat16, device="meta")).dtype == torch.float32


def test_the_configuration_in_plain_numbers():
    found = build_decoder(tiny_config("mistral", sliding_window=4, head_dim=8), dtype="float32").module.config
    (kind,) = set(found.layers)
    assert (found.num_heads, found.num_kv_heads, found.head_dim, kind.window) == (4, 2, 8, 4)
    assert kind.rotary.inv_freq == pytest.approx([10_000 ** (-i / 4) for i in range(4)])
    yarn = build_decoder(tiny_config("llama", rope_parameters=YARN), dtype="float32").module.config
    assert yarn.rotaries[0].scale == pytest.approx(1.1386294)
