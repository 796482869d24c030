"""Sequence parallelism: the logits of one core, with norms that see a part of a prompt."""

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.models import build_decoder
from tests.models.cores import SharedPair
from tests.models.mixtures import MIXTURES
from tests.models.steps import NUM_COLUMNS, check_steps, pair
from tests.tiny import tiny_config

MODEL_TYPES = ("llama", "gpt2", "bloom", "olmo2", "gemma2", "falcon", "gpt_neox", "lfm2", "qwen3_next", "deepseek_v3")
"""One of each way to place norms, positions, and experts."""


def options_of(model_type):
    return MIXTURES[model_type][model_type][1] if model_type in MIXTURES else {}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_two_cores_divide_the_tokens_of_a_prompt(model_type):
    shared = SharedPair.of(pair(model_type, **options_of(model_type)), 2, sequence_parallel=True)
    lengths = []
    for layer in shared.families[0].module.layers:
        layer.register_forward_hook(lambda module, inputs, x: lengths.append(x.shape[1]))
    check_steps(shared)
    num_layers = len(shared.families[0].module.layers)
    # Two prompts, then one token, three, and one: these are not divided.
    assert lengths[::num_layers] == [NUM_COLUMNS // 2] * 2 + [1, 3, 1]


def test_a_length_that_the_cores_do_not_divide_is_whole():
    shared = SharedPair.of(pair("llama", num_key_value_heads=4), 4, sequence_parallel=True)
    lengths = []
    shared.families[0].module.layers[0].register_forward_hook(lambda module, inputs, x: lengths.append(x.shape[1]))
    check_steps(shared)
    assert lengths[0] == NUM_COLUMNS


def test_the_generic_path_is_refused():
    with pytest.raises(ConfigError) as caught:
        build_decoder(tiny_config("llama"), dtype="float32", family="generic", group_size=2, sequence_parallel=True)
    assert caught.value.details["option"] == "sequence_parallel"
