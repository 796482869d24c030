"""Fields that decide a program, and fields that do not."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from transformers import AutoConfig

from optimum_neuron.compiler.cache import CompileCache, open_cache
from optimum_neuron.errors import ConfigError, ModelError, UnsupportedDtypeError
from optimum_neuron.exporters import cache_request, neuron_config, structure_differences
from optimum_neuron.exporters.peer_options import split_options
from optimum_neuron.exporters.request import request_fields, structure_of
from optimum_neuron.kinds import compile_options
from optimum_neuron.options.option import SOURCE_OPTIONS
from optimum_neuron.sources import TASKS, ModelSource, load_source, tasks_of
from tests.encoders import save_tiny_encoder, tiny_encoder_config, tiny_shapes
from tests.raising import raises
from tests.tiny import SHAPES, tiny_config

pytestmark = pytest.mark.usefixtures("compiled_before")


@pytest.fixture
def source(checkpoint):
    return load_source(checkpoint)


def of_config(config, folder) -> ModelSource:
    return ModelSource(name="m", folder=folder, config=config, revision=None)


def test_configuration_is_complete(source):
    config, target = neuron_config(source, {})
    assert (config.task, config.batch_size) == ("text-generation", 1)
    assert (config.target, config.instance_type) == ("inf2", "inf2.xlarge")
    assert (config.sequence_length, config.prefill_buckets, config.torch_dtype) == (64, (64,), "float32")
    assert target.value.name == "inf2" and target.reason.startswith("default")
    assert neuron_config(source, dict.fromkeys(compile_options())) == (config, target), "None means not given"


def test_dtypes_and_levels_accept_transformers_spelling(source):
    config, _ = neuron_config(source, {"torch_dtype": torch.bfloat16, "optlevel": 1, "prefill_buckets": [8, 16]})
    assert (config.torch_dtype, config.optlevel, config.prefill_buckets) == ("bfloat16", "1", (8, 16))


@pytest.mark.parametrize(
    ("dtype", "options", "choice"),
    [
        ("bfloat16", {}, "bfloat16"),
        ("float64", {}, "float32"),
        ("bfloat16", {"auto_cast": "matmul"}, "float32"),
        ("bfloat16", {"torch_dtype": "float16"}, "float16"),
    ],
)
def test_dtype_defaults_to_checkpoint_unless_auto_cast(tmp_path, dtype, options, choice):
    source = of_config(tiny_config("llama", architectures=["LlamaForCausalLM"], dtype=dtype), tmp_path)
    assert neuron_config(source, options)[0].torch_dtype == choice


@pytest.mark.parametrize(
    ("options", "error", "details"),
    [
        ({"sequence_length": 65}, ConfigError, {"option": "sequence_length", "limit": 64}),
        ({"batch_size": 0}, ConfigError, {"option": "batch_size"}),
        ({"prefill_buckets": (16, 64), "sequence_length": 32}, ConfigError, {"option": "prefill_buckets"}),
        ({"auto_cast": "all", "torch_dtype": "bfloat16"}, ConfigError, {"options": ["auto_cast", "torch_dtype"]}),
        ({"auto_cast": "all", "auto_cast_type": "fp8_e4m3"}, UnsupportedDtypeError, {}),
        ({"torch_dtype": "int8"}, ConfigError, {"option": "torch_dtype"}),
        ({"instance_type": "inf1"}, ConfigError, {}),
        ({"instance_type": "inf2.xlrge"}, ConfigError, {}),
        ({"batchsize": 2}, ConfigError, {"options": ["batchsize"]}),
        ({"height": 2}, ConfigError, {"options": ["height"]}),
        ({"task": "text-to-audio"}, ModelError, {"task": "text-to-audio"}),
        ({"task": "text-generatio"}, ModelError, {"task": "text-generatio", "choices": list(TASKS)}),
        ({"task": "fill-mask"}, ModelError, {"task": "fill-mask", "tasks": tasks_of("llama")}),
    ],
    ids=str,
)
def test_uncompilable_options_are_rejected(source, options, error, details):
    with pytest.raises(error) as excinfo:
        neuron_config(source, options)
    assert {name: excinfo.value.details[name] for name in details} == details


def test_fp8_depends_on_target(source):
    options = {"auto_cast": "all", "auto_cast_type": "fp8_e4m3", "instance_type": "trn2"}
    assert neuron_config(source, options)[0].auto_cast_type == "fp8_e4m3"


@pytest.mark.parametrize("model_type", ["bloom", "mamba"])
def test_architecture_without_positions_needs_sequence_length(model_type, tmp_path):
    source = of_config(AutoConfig.for_model(model_type, architectures=["XForCausalLM"]), tmp_path)
    with pytest.raises(ModelError) as error:
        neuron_config(source, {})
    assert error.value.details == {"option": "sequence_length", "model_type": model_type}
    assert neuron_config(source, {"sequence_length": 4096})[0].sequence_length == 4096


def test_mpt_limit_has_another_field(tmp_path):
    source = of_config(AutoConfig.for_model("mpt", architectures=["MptForCausalLM"], max_seq_len=64), tmp_path)
    assert neuron_config(source, {})[0].sequence_length == 64
    with pytest.raises(ConfigError) as error:
        neuron_config(source, {"sequence_length": 65})
    assert error.value.details["limit"] == 64


def test_target_defaults_to_environment(source, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    config, target = neuron_config(source, {})
    assert config.target == "trn2" and "NEURON_PLATFORM_TARGET_OVERRIDE" in target.reason


# Fields in the key of the cache.


def test_request_holds_no_path_and_no_weights(checkpoint, source):
    text = json.dumps(request_fields(source, neuron_config(source, SHAPES)[0]))
    assert str(checkpoint) not in text and "weight" not in text


@pytest.mark.parametrize(
    "changes",
    [
        {"use_cache": False},
        {"attention_dropout": 0.5},
        {"initializer_range": 1.0},
        {"dtype": "bfloat16"},
        {"bos_token_id": 5, "eos_token_id": [3, 4], "pad_token_id": 7},
        {"architectures": ["Other"]},
        {"transformers_version": "9.9"},
    ],
)
def test_training_fields_do_not_change_request(changes):
    assert structure_differences(tiny_config("llama", **changes), tiny_config("llama")) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_hidden_layers", 2), ("rms_norm_eps", 0.1), ("tie_word_embeddings", True), ("hidden_act", "gelu")]
    + [("rope_parameters", {"rope_type": "default", "rope_theta": 5.0})],
)
def test_shape_fields_change_request(name, value):
    changed = tiny_config("llama", **{name: value})
    (text,) = structure_differences(changed, tiny_config("llama"))
    assert text.startswith(f"{name}=") and ", compiled with " in text
    assert structure_of(changed) != structure_of(tiny_config("llama"))


def test_instance_size_and_weight_location_share_program(source):
    config, _ = neuron_config(source, SHAPES)
    for change in ({"instance_type": "inf2.24xlarge"}, {"inline_weights_to_neff": True}):
        assert request_fields(source, config) == request_fields(source, dataclasses.replace(config, **change))
    shorter = {"sequence_length": 40, "prefill_buckets": (40,), "decode_buckets": (40,)}
    for change in (shorter, {"decode_buckets": (48,)}, {"batch_size": 1}, {"target": "trn1"}):
        assert request_fields(source, config) != request_fields(source, dataclasses.replace(config, **change))


def test_keywords_are_split_into_source_and_options():
    where, what = split_options({"revision": "v1", "batch_size": 2})
    assert (where, what) == ({"revision": "v1"}, {"batch_size": 2})
    assert not set(SOURCE_OPTIONS) & set(compile_options())
    with raises(ConfigError, options=["revison"]):
        split_options({"revison": "v1"})


def test_cache_lookup_before_and_after_export(checkpoint, model, tmp_path):
    cache, fields = cache_request(checkpoint, **SHAPES)
    assert isinstance(cache, CompileCache) and cache.lookup(fields).value is not None
    assert fields["model_type"] == "llama" and fields["ir_hash"] == model.prepared.program.content_hash()
    empty, _ = cache_request(checkpoint, cache_url=str(tmp_path), **SHAPES)
    assert empty.lookup(fields).value is None


def test_one_program_with_other_padding_is_another_entry(tmp_path):
    shapes = tiny_shapes("clip", "feature-extraction")
    entries = []
    for padding in (0, 3):
        text = tiny_encoder_config("clip").text_config.to_dict() | {"pad_token_id": padding}
        folder = save_tiny_encoder(tmp_path / str(padding), "clip", "feature-extraction", text_config=text)
        entries.append(cache_request(folder, task="feature-extraction", **shapes)[1])
    assert entries[0]["ir_hash"] == entries[1]["ir_hash"]
    assert entries[0]["metadata_hash"] != entries[1]["metadata_hash"]


def test_compiler_flags_of_environment_are_defaults(source, monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--target trn1 --auto-cast matmult --auto-cast-type fp16 -O1")
    config, target = neuron_config(source, {})
    assert (config.auto_cast, config.auto_cast_type, config.optlevel) == ("matmul", "fp16", "1")
    assert target.value.name == config.target == "trn1"
    config, target = neuron_config(source, {"auto_cast": "none", "optlevel": "2", "instance_type": "inf2"})
    assert (config.auto_cast, config.optlevel, config.target) == ("none", "2", "inf2")
    # The compiler rounds float32 operations; other weights have none, and that is no contradiction.
    assert neuron_config(source, {"torch_dtype": "bfloat16"})[0].auto_cast == "none"


@pytest.mark.parametrize(
    ("flags", "options", "cast"),
    [
        ("-O1", {}, ("all", "bf16")),
        ("--auto-cast matmult --auto-cast-type fp16", {}, ("matmul", "fp16")),
        ("--auto-cast none", {}, ("none", "bf16")),
        ("--auto-cast none", {"auto_cast": "all"}, ("all", "bf16")),
    ],
)
def test_inf1_rounds_unless_options_or_the_environment_say_otherwise(tmp_path, monkeypatch, flags, options, cast):
    monkeypatch.setenv("NEURON_CC_FLAGS", flags)
    source = load_source(save_tiny_encoder(tmp_path, "bert", "feature-extraction"))
    config, _ = neuron_config(source, {"task": "feature-extraction", "instance_type": "inf1", **options})
    assert (config.auto_cast, config.auto_cast_type) == cast


def test_logical_cores_of_environment_are_checked(source, monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with raises(ConfigError, code="NCC_EARG001", lnc=2):
        neuron_config(source, {"instance_type": "inf2"})
    neuron_config(source, {"instance_type": "trn2"})


def test_cache_of_environment_is_used_or_not(source, monkeypatch, tmp_path):
    monkeypatch.setenv("NEURON_CC_FLAGS", f"--cache_dir={tmp_path}")
    assert open_cache(False).url == str(tmp_path)
    monkeypatch.setenv("NEURON_CC_FLAGS", "--no_cache")
    assert open_cache(False) is None
    assert open_cache(False, str(tmp_path)).url == str(tmp_path)
