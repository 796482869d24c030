import pytest

from optimum_neuron.errors import CaptureError
from optimum_neuron.models.generic import build
from tests.tiny import tiny_config

FACTORS = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_frequencies_that_follow_the_length_are_refused(kind):
    config = tiny_config("llama", rope_parameters={"rope_type": kind, "factor": 2.0, "rope_theta": 1e4, **FACTORS})
    with pytest.raises(CaptureError, match=f"rope_type {kind}: rotary frequencies that follow the length"):
        build(config)


def test_fixed_frequencies_are_not():
    build(tiny_config("gemma3_text"))
    build(tiny_config("qwen2", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}))
