"""Refusals and notes of decoders: what is too large says what would fit."""

from __future__ import annotations

import pytest
from transformers import AutoConfig

from optimum_neuron.errors import ConfigError, DeviceMemoryError, ModelError
from optimum_neuron.simulator import estimate

LARGE = AutoConfig.for_model(
    "llama",
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    vocab_size=128256,
    max_position_embeddings=8192,
)
EIGHT = AutoConfig.for_model(
    "llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_key_value_heads=8, vocab_size=128256
)


def test_the_smallest_larger_instance_is_named_and_holds_it():
    with pytest.raises(DeviceMemoryError, match="inf2.24xlarge with tensor_parallel_size=12"):
        estimate(LARGE, instance="inf2.xlarge", sequence_length=4096)
    assert estimate(LARGE, instance="inf2.24xlarge", tensor_parallel_size=12, sequence_length=4096)


def test_the_rows_that_fit_are_named():
    with pytest.raises(DeviceMemoryError, match="batch_size=(6[0-9]) or less") as error:
        estimate(LARGE, instance="inf2.48xlarge", sequence_length=4096, batch_size=70)
    rows = int(error.value.hint.partition("batch_size=")[2].partition(" ")[0])
    assert estimate(LARGE, instance="inf2.48xlarge", sequence_length=4096, batch_size=rows)
    with pytest.raises(DeviceMemoryError):
        estimate(LARGE, instance="inf2.48xlarge", sequence_length=4096, batch_size=rows + 1)


def test_a_tight_fit_is_noted():
    told = estimate(EIGHT, instance="inf2.xlarge", tensor_parallel_size=1, sequence_length=2048)
    assert any("upper end of what it needs does not fit" in note for note in told.notes)


def test_options_of_other_models_are_named():
    with pytest.raises(ConfigError) as error:
        estimate(EIGHT, instance="inf2.xlarge", height=3)
    assert error.value.details["options"] == ["height"]


def test_a_decoder_without_attention_is_refused():
    with pytest.raises(ModelError, match="without attention"):
        estimate(AutoConfig.for_model("mamba", num_hidden_layers=1), instance="inf2.xlarge")
