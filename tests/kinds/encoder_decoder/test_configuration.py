"""Lengths of an encoder-decoder are checked before anything is compiled."""

from __future__ import annotations

import pytest

from optimum_neuron.errors import ConfigError
from optimum_neuron.kinds.encoder_decoder import NeuronSeq2SeqConfig


def test_defaults_follow_model_limits():
    config = NeuronSeq2SeqConfig().resolve(num_positions=40)
    assert (config.source_buckets, config.num_target_slots) == ((40,), 40)
    assert NeuronSeq2SeqConfig().resolve(num_positions=None).source_buckets == (128,)


def test_lengths_beyond_positions_are_refused_together():
    with pytest.raises(ConfigError) as error:
        NeuronSeq2SeqConfig(sequence_length=64, decoder_sequence_length=80).resolve(num_positions=40)
    details = [problem["details"] for problem in error.value.details["problems"]]
    assert [one["option"] for one in details] == ["sequence_length", "decoder_sequence_length"]
