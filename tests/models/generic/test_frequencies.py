"""Rotary frequencies that follow the length: those of short sequences are compiled, and longer ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from optimum_neuron.errors import CaptureError
from optimum_neuron.models import build_decoder
from tests.models.steps import NUM_TOKENS, Pair, check_steps, pair
from tests.tiny import tiny_config

FACTORS = {"short_factor": [1.5] * 4, "long_factor": [3.0] * 4, "original_max_position_embeddings": NUM_TOKENS}
SETTINGS: dict[str, dict[str, Any]] = {
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    "longrope": {"rope_type": "longrope", "factor": 2.0, "rope_theta": 1e4, **FACTORS},
}


def config_of(kind: str) -> Any:
    return tiny_config("llama", rope_parameters=SETTINGS[kind], max_position_embeddings=NUM_TOKENS)


@pytest.mark.parametrize("kind", SETTINGS)
def test_short_sequences_have_the_logits_of_transformers(kind):
    plain = {"rope_type": "default", "rope_theta": 1e4}
    models = pair("llama", family="generic", rope_parameters=plain, max_position_embeddings=NUM_TOKENS)
    config = config_of(kind)
    original = type(models.original)(config).eval()
    original.load_state_dict(models.original.state_dict())
    check_steps(Pair(build_decoder(config, dtype="float32", num_tokens=NUM_TOKENS), original))


@pytest.mark.parametrize("num_tokens", [NUM_TOKENS + 1, None])
@pytest.mark.parametrize("kind", SETTINGS)
def test_longer_sequences_are_refused(kind, num_tokens):
    with pytest.raises(CaptureError) as error:
        build_decoder(config_of(kind), dtype="float32", num_tokens=num_tokens)
    details = {"rope_types": [kind], "limit": NUM_TOKENS, "sequence_length": num_tokens}
    assert error.value.details == details


def test_layers_of_each_type_have_their_scaling():
    rotary = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e2}, "full_attention": SETTINGS["longrope"]}
    config = tiny_config("gemma3_text", rope_parameters=rotary)
    decoder = build_decoder(config, dtype="float32", family="generic", num_tokens=NUM_TOKENS)
    assert decoder.module.model.model.rotary_emb.rope_type == dict.fromkeys(rotary, "default")
