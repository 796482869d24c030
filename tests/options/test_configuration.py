"""`NeuronConfig`: values that are rejected, sizes that are filled in, and JSON."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest

from optimum_neuron import NeuronConfig
from optimum_neuron.errors import ConfigError
from optimum_neuron.kinds.encoder_decoder import NeuronSeq2SeqConfig, NeuronSpeechSeq2SeqConfig
from optimum_neuron.kinds.multimodal.image import NeuronImageTextConfig
from optimum_neuron.options.configuration import MAX_DEFAULT_SEQUENCE_LENGTH
from optimum_neuron.options.option import check_known
from tests.raising import raises

SEQ2SEQ, SPEECH, IMAGES = NeuronSeq2SeqConfig, NeuronSpeechSeq2SeqConfig, NeuronImageTextConfig

REJECTED_OF_KINDS = [
    *((SEQ2SEQ, name, 0) for name in ("batch_size", "num_beams", "sequence_length")),
    *((SEQ2SEQ, "sequence_length", value) for value in ([16, 8], 8.0)),
    *((SEQ2SEQ, "decoder_sequence_length", value) for value in (True, [8, 16])),
    *((SPEECH, name, value) for name, value in (("audio_sequence_length", [9, 8]), ("nb_max_frames", 1.5))),
    *((IMAGES, "max_num_images", value) for value in (0, True)),
    *((IMAGES, "image_size", value) for value in (16.0, [16, 0])),
    *((IMAGES, "image_batch_size", value) for value in (None, 0)),
]

REJECTED = {
    "batch_size": (0, "1", True, None),
    "sequence_length": (-8,),
    "extend_length": (2.5, None),
    "auto_cast": ("matmult",),
    "auto_cast_type": ("bf-16",),
    "optlevel": (2,),
    "torch_dtype": ("float64",),
    "prefill_buckets": ((), (512, 128), (128, 128), (0, 128), (True, 128), 128, "128", [[128]]),
    "decode_buckets": ((512, 128),),
    "task": (None,),
    "allow_host_ops": ("aten.sort",),
    "inline_weights_to_neff": ("yes",),
}


@pytest.mark.parametrize(
    ("config_class", "option", "value"),
    [*((NeuronConfig, name, value) for name, values in REJECTED.items() for value in values), *REJECTED_OF_KINDS],
    ids=str,
)
def test_uncompilable_value_is_rejected(config_class, option, value):
    with pytest.raises(ConfigError) as error:
        config_class(**{option: value})
    assert (error.value.details["option"], error.value.details["value"]) == (option, value) and error.value.hint
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(("option", "buckets"), [("decode_buckets", (128, 256)), ("prefill_buckets", (128, 600))])
def test_buckets_end_at_sequence_length(option, buckets):
    with pytest.raises(ConfigError) as error:
        NeuronConfig(sequence_length=512, **{option: buckets})
    assert (error.value.details["option"], error.value.details["sequence_length"]) == (option, 512)


def test_two_roundings_are_rejected():
    with pytest.raises(ConfigError) as error:
        NeuronConfig(auto_cast="matmul", torch_dtype="bfloat16")
    assert error.value.details["options"] == ["auto_cast", "torch_dtype"]


def test_all_problems_are_reported_together():
    wrong = {"batch_size": 0, "extend_length": 0, "sequence_length": "512", "auto_cast": "most"}
    wrong |= {"auto_cast_type": "int8", "optlevel": "9", "torch_dtype": "int8", "prefill_buckets": (64, 32)}
    with pytest.raises(ConfigError) as error:
        NeuronConfig(**wrong)
    options = [problem["details"].get("option") for problem in error.value.details["problems"]]
    assert options == [*list(wrong)[:7], None, "prefill_buckets"]
    assert len(str(error.value).splitlines()) == len(options)
    with pytest.raises(ConfigError) as error:
        NeuronConfig(sequence_length="512", prefill_buckets=(128,))
    assert error.value.details["option"] == "sequence_length"


def test_speculation_checks_several_tokens():
    with pytest.raises(ConfigError) as error:
        NeuronConfig(speculation=True, extend_length=1)
    assert error.value.details == {"option": "speculation", "extend_length": 1}


def test_unknown_options_are_rejected():
    with raises(ConfigError, options=["batchsize", "zzz"]):
        NeuronConfig.from_dict({"batchsize": 1, "zzz": 2, "task": "text-generation"})
    check_known({"a": 1}, ["a", "b"], what="x")


@pytest.mark.parametrize(
    "config",
    [
        NeuronConfig(),
        NeuronConfig(sequence_length=512, prefill_buckets=(128, 512), torch_dtype="bfloat16", family="llama"),
        NeuronConfig(auto_cast="all", auto_cast_type="fp8_e4m3", optlevel="3", inline_weights_to_neff=True),
        NeuronConfig(batch_size=4, target="trn2").resolve(max_position_embeddings=8192),
        SEQ2SEQ(sequence_length=[8, 16], decoder_sequence_length=12),
        SPEECH(audio_sequence_length=[3000, 6000], decoder_sequence_length=12),
        IMAGES(sequence_length=64, prefill_buckets=[16, 64], max_num_images=2),
    ],
    ids=["defaults", "shapes", "casts", "resolved", "seq2seq", "speech", "images"],
)
def test_json_round_trip(config):
    text = config.to_json()
    assert type(config).from_dict(json.loads(text)) == config
    assert list(json.loads(text)) == sorted(json.loads(text)) and text.endswith("}\n")


def test_json_lists_become_tuples_and_configuration_is_hashable():
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
def test_open_sizes_are_resolved_for_model(options, positions, length, buckets):
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
def test_decode_step_attends_to_a_bucket_of_slots(options, buckets):
    assert NeuronConfig(**options).resolve(max_position_embeddings=8192).decode_buckets == buckets


def test_resolved_configuration_has_no_open_sizes():
    resolved = NeuronConfig().resolve(max_position_embeddings=64)
    assert pickle.loads(pickle.dumps(resolved)) == resolved != NeuronConfig()
    with pytest.raises(ConfigError) as error:
        dataclasses.replace(resolved, sequence_length=None).require_complete()
    assert error.value.details["option"] == "sequence_length"


def test_short_sequence_shortens_extension():
    assert NeuronConfig(sequence_length=4).resolve(max_position_embeddings=64).extend_length == 4
    assert NeuronConfig(sequence_length=32).resolve(max_position_embeddings=64).extend_length == 8


@pytest.mark.parametrize(
    ("options", "positions"),
    [({"sequence_length": 2048}, 1024), ({"prefill_buckets": (2048,)}, 1024), ({"decode_buckets": (4,)}, 100)],
    ids=str,
)
def test_lengths_beyond_model_positions_are_rejected(options, positions):
    with pytest.raises(ConfigError) as error:
        NeuronConfig(**options).resolve(max_position_embeddings=positions)
    assert error.value.details["option"] == next(iter(options))


@pytest.mark.parametrize(
    ("config", "open_sizes"),
    [
        (NeuronConfig(sequence_length=64), ["prefill_buckets", "decode_buckets"]),
        (SEQ2SEQ(sequence_length=8), ["decoder_sequence_length"]),
        (SPEECH(decoder_sequence_length=8), ["audio_sequence_length or nb_max_frames"]),
    ],
    ids=["decoder", "seq2seq", "speech"],
)
def test_configuration_with_open_sizes_is_not_complete(config, open_sizes):
    assert config.open_sizes == open_sizes
    with raises(ConfigError, option=open_sizes[0]):
        config.completed()
