import pytest

from optimum_neuron.errors import CaptureError
from optimum_neuron.models.generic import build
from tests.models.steps import masks_of
from tests.tiny import tiny_config

FACTORS = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_frequencies_that_follow_the_length_are_refused(kind):
    config = tiny_config("llama", rope_parameters={"rope_type": kind, "factor": 2.0, "rope_theta": 1e4, **FACTORS})
    with pytest.raises(CaptureError) as error:
        build(config)
    assert error.value.details["rope_types"] == [kind]


def test_fixed_frequencies_are_not():
    build(tiny_config("gemma3_text"))
    build(tiny_config("qwen2", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}))


OTHERS = {
    "qwen2": (
        {"layer_types": ["conv", "compressed_sparse_attention", "sliding_attention"]},
        ["compressed_sparse_attention"],
    ),
}


@pytest.mark.parametrize("model_type", OTHERS)
def test_layers_that_have_no_mask_or_cache_here_are_refused_by_name(model_type):
    overrides, layer_types = OTHERS[model_type]
    with pytest.raises(CaptureError) as error:
        build(tiny_config(model_type, **overrides))
    assert error.value.details["layer_types"] == layer_types


def test_chunked_layers_see_their_own_chunk():
    kinds = ["chunked_attention"] * 2 + ["full_attention"]
    decoder = build(tiny_config("llama4_text", layer_types=kinds, num_local_experts=2, attention_chunk_size=3))
    found = masks_of(decoder, [[1, 4]], 6)
    assert found["chunked_attention"][0, 0].int().tolist() == [[1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0]]
    assert found["full_attention"][0, 0].int().tolist() == [[1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
