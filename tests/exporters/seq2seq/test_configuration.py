"""Lengths of an encoder-decoder are checked before anything is compiled."""

from __future__ import annotations

import pytest

from optimum_neuron import NeuronSeq2SeqConfig
from optimum_neuron.errors import ConfigError


def test_defaults_are_what_the_model_allows():
    config = NeuronSeq2SeqConfig().resolve(num_positions=40)
    assert (config.source_buckets, config.num_target_slots) == ((40,), 40)
    assert NeuronSeq2SeqConfig().resolve(num_positions=None).source_buckets == (128,)


def test_a_configuration_survives_json():
    config = NeuronSeq2SeqConfig(sequence_length=[8, 16], decoder_sequence_length=12)
    assert NeuronSeq2SeqConfig.from_dict(config.to_dict()) == config


def test_lengths_beyond_the_positions_are_refused_together():
    with pytest.raises(ConfigError) as refused:
        NeuronSeq2SeqConfig(sequence_length=64, decoder_sequence_length=80).resolve(num_positions=40)
    assert "sequence_length=64" in str(refused.value) and "decoder_sequence_length=80" in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"num_beams": 0},
        {"sequence_length": [16, 8]},
        {"sequence_length": 0},
        {"sequence_length": 8.0},
        {"decoder_sequence_length": True},
        {"decoder_sequence_length": [8, 16]},
    ],
    ids=str,
)
def test_sizes_that_are_none_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        NeuronSeq2SeqConfig(**options)
