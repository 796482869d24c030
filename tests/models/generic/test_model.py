import pytest

from optimum_neuron.errors import CaptureError
from optimum_neuron.models.generic import build
from tests.models.steps import masks_of
from tests.tiny import tiny_config

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
