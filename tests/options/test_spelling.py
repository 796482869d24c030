"""Errors of a block name options as the user wrote them: in messages, hints, and details, also of several problems."""

import pytest

from optimum_neuron.errors import ConfigError, raise_together
from optimum_neuron.options.decoder_options import DecoderOptions, decoder_errors
from optimum_neuron.options.sizes import limit_error
from optimum_neuron.options.spelling import respelled, spelled

NAMES = {"sequence_length": "n_positions", "quantization": "quant", "num_blocks": "blocks + 1"}


def test_an_error_has_the_names_of_the_user():
    with pytest.raises(ConfigError) as caught, spelled(NAMES):
        raise limit_error("sequence_length", 4096, 64)
    error = caught.value
    assert error.details == {"option": "n_positions", "value": 4096, "limit": 64}
    assert "n_positions" in error.hint and "sequence_length" not in f"{error} {error.args}"


def test_several_problems_have_them_too():
    config = DecoderOptions(num_blocks=3, block_size=8, modules_to_not_convert=("lm_head",))
    with pytest.raises(ConfigError) as caught, spelled(NAMES):
        raise_together(decoder_errors(config))
    options = [problem["details"]["option"] for problem in caught.value.details["problems"]]
    assert "blocks" in options and "num_blocks" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quantization=3 for the quantization of num_blocks=2", "quant=3 for the quantization of blocks + 1=2"),
        ("model.sequence_length, --sequence_length, my_sequence_length", None),
        ("no option", None),
    ],
)
def test_names_are_whole_words(text, expected):
    assert respelled(text, NAMES) == (text if expected is None else expected)
    assert respelled(text, {}) == text


def test_functions_are_blocks():
    @spelled(NAMES)
    def call():
        raise ConfigError("two", options=["sequence_length", "other"])

    with pytest.raises(ConfigError) as caught:
        call()
    assert caught.value.details == {"options": ["n_positions", "other"]}
