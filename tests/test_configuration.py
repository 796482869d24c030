"""`NeuronConfig`: what is refused, what is filled in, and that it survives JSON."""

from __future__ import annotations

import dataclasses
import json

import pytest

from optimum_neuron import NeuronConfig
from optimum_neuron.configuration import MAX_DEFAULT_SEQUENCE_LENGTH, check_known
from optimum_neuron.errors import ConfigError

REFUSED = {
    "no rows": ({"batch_size": 0}, "batch_size=0: not a whole number of at least 1"),
    "negative": ({"sequence_length": -8}, "sequence_length=-8: not a whole number"),
    "fraction": ({"extend_length": 2.5}, "extend_length=2.5: not a whole number"),
    "text": ({"batch_size": "1"}, "batch_size='1': not a whole number"),
    "boolean": ({"batch_size": True}, "batch_size=True: not a whole number"),
    "no batch size": ({"batch_size": None}, "batch_size=None: not a whole number"),
    "no extend length": ({"extend_length": None}, "extend_length=None: not a whole number"),
    "auto_cast": (
        {"auto_cast": "matmult"},
        "auto_cast='matmult': not one of none, matmul, all, did you mean 'matmul'?",
    ),
    "auto_cast_type": ({"auto_cast_type": "bf-16"}, "did you mean 'bf16'?"),
    "optlevel": ({"optlevel": 2}, "optlevel=2: not one of 1, 2, 3"),
    "torch_dtype": ({"torch_dtype": "float64"}, "torch_dtype='float64': not one of float32, bfloat16, float16"),
    "two roundings": (
        {"auto_cast": "matmul", "torch_dtype": "bfloat16"},
        "auto_cast='matmul' with torch_dtype='bfloat16': two settings for the same arithmetic",
    ),
    "no buckets": ({"prefill_buckets": ()}, "prefill_buckets=(): not a rising list"),
    "falling": ({"prefill_buckets": (512, 128)}, "not a rising list"),
    "twice": ({"prefill_buckets": (128, 128)}, "not a rising list"),
    "zero": ({"prefill_buckets": (0, 128)}, "not a rising list"),
    "booleans": ({"prefill_buckets": (True, 128)}, "not a rising list"),
    "a number": ({"prefill_buckets": 128}, "prefill_buckets=128: not a rising list"),
    "text buckets": ({"prefill_buckets": "128"}, "prefill_buckets=128: not a rising list"),
    "nested": ({"prefill_buckets": [[128]]}, "not a rising list"),
    "falling decode buckets": ({"decode_buckets": (512, 128)}, "decode_buckets=(512, 128): not a rising list"),
    "decode buckets that end early": (
        {"decode_buckets": (128, 256), "sequence_length": 512},
        "decode_buckets=(128, 256) with sequence_length=512: no step sees the last 256 slots",
    ),
    "too long": (
        {"prefill_buckets": (128, 600), "sequence_length": 512},
        "prefill_buckets=(128, 600) with sequence_length=512: the largest bucket is longer by 88",
    ),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_compiled_is_refused(options, message):
    with pytest.raises(ConfigError) as refused:
        NeuronConfig(**options)
    assert message in str(refused.value) and "To fix it: " in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as refused:
        NeuronConfig(
            batch_size=0,
            sequence_length="512",
            extend_length=0,
            auto_cast="most",
            auto_cast_type="int8",
            optlevel="9",
            torch_dtype="int8",
            prefill_buckets=(64, 32),
        )
    lines = str(refused.value).splitlines()
    asked = [line.split("=")[0] for line in lines]
    assert asked[:7] == [
        "batch_size",
        "sequence_length",
        "extend_length",
        "auto_cast",
        "auto_cast_type",
        "optlevel",
        "torch_dtype",
    ]
    assert asked[-1] == "prefill_buckets"
    with pytest.raises(ConfigError) as refused:
        NeuronConfig(sequence_length="512", prefill_buckets=(128,))
    assert len(str(refused.value).splitlines()) == 1


def test_unknown_options_are_refused_with_the_nearest():
    with pytest.raises(ConfigError) as refused:
        NeuronConfig.from_dict({"batchsize": 1, "zzz": 2, "task": "text-generation"})
    message = str(refused.value)
    assert "'batchsize', did you mean 'batch_size'?" in message and "'zzz'" in message and "'task'" not in message
    check_known({"a": 1}, ["a", "b"], what="x")


@pytest.mark.parametrize(
    "config",
    [
        NeuronConfig(),
        NeuronConfig(sequence_length=512, prefill_buckets=(128, 512), torch_dtype="bfloat16", family="llama"),
        NeuronConfig(auto_cast="all", auto_cast_type="fp8_e4m3", optlevel="3", inline_weights_to_neff=True),
        NeuronConfig(batch_size=4, target="trn2").resolve(max_position_embeddings=8192),
    ],
    ids=["defaults", "shapes", "casts", "resolved"],
)
def test_json_brings_the_same_configuration_back(config):
    text = config.to_json()
    assert NeuronConfig.from_dict(json.loads(text)) == config
    assert list(json.loads(text)) == sorted(json.loads(text)) and text.endswith("}\n")


def test_lists_from_json_become_tuples_and_a_configuration_is_frozen_and_hashable():
    config = NeuronConfig(prefill_buckets=[16, 32])
    assert config.prefill_buckets == (16, 32)
    assert hash(config) == hash(NeuronConfig(prefill_buckets=(16, 32)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.batch_size = 2


@pytest.mark.parametrize(
    ("options", "positions", "length", "buckets"),
    [
        ({}, 8192, MAX_DEFAULT_SEQUENCE_LENGTH, (128, 512, 2048, 4096)),
        ({}, 2048, 2048, (128, 512, 2048)),
        ({}, 100, 100, (100,)),
        ({"sequence_length": 128}, 8192, 128, (128,)),
        ({"sequence_length": 129}, 8192, 129, (128, 129)),
        ({"sequence_length": 8192}, 8192, 8192, (128, 512, 2048, 8192)),
        ({"sequence_length": 512, "prefill_buckets": (64,)}, 1024, 512, (64,)),
        ({"prefill_buckets": (64, 256)}, 1024, 1024, (64, 256)),
    ],
)
def test_open_ends_are_filled_in_for_a_model(options, positions, length, buckets):
    resolved = NeuronConfig(**options).resolve(max_position_embeddings=positions)
    assert (resolved.sequence_length, resolved.prefill_buckets) == (length, buckets)
    assert resolved.resolve(max_position_embeddings=positions) == resolved


@pytest.mark.parametrize(
    ("options", "buckets"),
    [
        ({"sequence_length": 512}, (512,)),
        ({"sequence_length": 1024}, (1024,)),
        ({}, (1024, 4096)),
        ({"sequence_length": 8192}, (1024, 4096, 8192)),
        ({"sequence_length": 8192, "decode_buckets": [8192]}, (8192,)),
    ],
)
def test_a_decode_step_sees_a_bucket_of_slots(options, buckets):
    assert NeuronConfig(**options).resolve(max_position_embeddings=8192).decode_buckets == buckets


def test_decode_buckets_that_end_before_the_length_of_the_model_are_refused():
    with pytest.raises(ConfigError, match="no step sees the last 96 slots"):
        NeuronConfig(decode_buckets=(4,)).resolve(max_position_embeddings=100)


def test_a_short_sequence_shortens_what_one_call_adds():
    assert NeuronConfig(sequence_length=4).resolve(max_position_embeddings=64).extend_length == 4
    assert NeuronConfig(sequence_length=32).resolve(max_position_embeddings=64).extend_length == 8


def test_a_sequence_or_bucket_beyond_the_models_positions_is_refused():
    with pytest.raises(ConfigError, match="sequence_length=2048: the model has 1024 positions"):
        NeuronConfig(sequence_length=2048).resolve(max_position_embeddings=1024)
    with pytest.raises(ConfigError, match="the largest bucket is longer by 1024"):
        NeuronConfig(prefill_buckets=(2048,)).resolve(max_position_embeddings=1024)
