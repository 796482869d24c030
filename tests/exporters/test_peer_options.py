"""Keywords of Optimum Neuron: reported, checked, or taken apart."""

from __future__ import annotations

import logging
import types

import pytest

from optimum_neuron import (
    NeuronConfig,
    NeuronModelForCausalLM,
    NeuronModelForMaskedLM,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSpeechSeq2Seq,
    main_export,
)
from optimum_neuron.compiler.neff import open_neff
from optimum_neuron.errors import ConfigError, ModelError
from optimum_neuron.exporters import translate
from optimum_neuron.exporters.peer_options import FIXED, OF_DIFFUSION, WITHOUT_EFFECT
from optimum_neuron.kinds import kind_of
from optimum_neuron.options.configuration import NEFF_FILE
from tests import seq2seq, speech
from tests.encoders import save_tiny_encoder, tiny_shapes
from tests.tiny import SHAPES


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_ignored_keyword_is_reported(name, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.options.peer_attributes")
    assert translate({name: True, "batch_size": 2}) == {"batch_size": 2}
    assert [record.args[0] for record in caplog.records] == [name]


def test_fixed_keyword_accepts_its_value():
    assert translate({name: value for name, (value, _) in FIXED.items()}) == {}
    assert translate(dict.fromkeys(FIXED)) == {}
    wrong = {"decoder_file_name": "decoder.neuron", "file_name": "other.neuron"}
    with pytest.raises(ConfigError) as excinfo:
        translate(wrong)
    assert excinfo.value.details == {"options": wrong}


def test_other_names_of_options():
    names = {
        "max_num_seqs": 8,
        "max_model_len": 64,
        "pa_block_size": 16,
        "pa_num_blocks": 33,
        "is_block_kv_layout": True,
    }
    ours = {"batch_size": 8, "sequence_length": 64, "block_size": 16, "num_blocks": 33, "continuous_batching": True}
    assert translate(names) == ours
    assert translate({"n_positions": 64, "num_cores": 2}) == {"sequence_length": 64, "tensor_parallel_size": 2}
    of_nxdi = {"tp_degree": 2, "pp_degree": 2, "context_encoding_buckets": (32,), "token_generation_buckets": (64,)}
    assert translate(of_nxdi) == {
        **{"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
        **{"prefill_buckets": (32,), "decode_buckets": (64,)},
    }
    with pytest.raises(ConfigError) as excinfo:
        translate({"max_num_seqs": 8, "batch_size": 4})
    assert excinfo.value.details == {"options": ["max_num_seqs", "batch_size"]}


def test_what_batching_does_always():
    asked = dict.fromkeys(("enable_prefix_caching", "is_prefix_caching", "enable_chunked_prefill"), True)
    assert translate(asked | {"is_continuous_batching": True}) == {"continuous_batching": True}
    for name in asked:
        for options in ({name: False, "continuous_batching": True}, {name: True}):
            with pytest.raises(ConfigError) as excinfo:
                translate(options)
            assert name in excinfo.value.details["options"]


@pytest.mark.parametrize("name", ["quantization_dtype", "quantization_type", "activation_quantization_type"])
def test_details_of_quantization_need_it(name):
    with pytest.raises(ConfigError) as excinfo:
        translate({name: "int8"})
    assert excinfo.value.details["options"] == [name]


def test_sampling_on_the_device():
    assert translate({"on_device_sampling": True, "global_topk": 64}) == {"on_device_sampling": True, "max_topk": 64}
    config = {"global_topk": 64, "do_sample": True, "dynamic": True}
    assert translate({"on_device_sampling_config": config}) == {"on_device_sampling": True, "max_topk": 64}
    assert translate({"on_device_sampling_config": types.SimpleNamespace(top_k=1)}) == {"on_device_sampling": True}
    with pytest.raises(ConfigError) as excinfo:
        translate({"async_mode": True, "async_scheduling": False})
    assert excinfo.value.details == {"options": {"async_mode": True}}
    with pytest.raises(ConfigError) as excinfo:
        translate({"max_num_batched_tokens": 64})
    assert excinfo.value.details == {"options": {"max_num_batched_tokens": 64}}


@pytest.mark.parametrize("name", OF_DIFFUSION)
def test_diffusion_options_are_errors(name):
    assert translate({name: None}) == translate({name: []}) == {}
    with pytest.raises(ModelError) as excinfo:
        translate({name: ["a"]})
    assert excinfo.value.details == {"options": [name]}


def test_configuration_replaces_options():
    config = NeuronConfig(batch_size=3, sequence_length=64)
    options = translate({"neuron_config": config, "batch_size": 1})
    assert options.items() >= {"batch_size": 1, "sequence_length": 64, "task": "text-generation"}.items()
    assert not options.keys() & {"target", "prefill_buckets"}
    with pytest.raises(ConfigError) as excinfo:
        translate({"neuron_config": {"batch_size": 1}})
    assert excinfo.value.details == {"type": "dict"}


def test_models_and_exports_accept_keywords(checkpoint, tmp_path):
    peer = {"tensor_parallel_size": 1, "disable_fast_relayout": True, "load_weights": True}
    options = {**SHAPES, **peer, "compiler_workdir": tmp_path / "work"}
    config = NeuronModelForCausalLM.from_pretrained(checkpoint, export=True, **options).neuron_config
    assert open_neff(tmp_path / "work" / "graph.neff").names
    main_export(checkpoint, tmp_path / "out", neuron_config=config, compiler_workdir=tmp_path / "other")
    assert NeuronConfig.from_pretrained(tmp_path / "out") == config
    assert (tmp_path / "other" / "graph.neff").read_bytes() == (tmp_path / "out" / NEFF_FILE).read_bytes()


@pytest.mark.parametrize(
    ("other", "name", "values"),
    [("num_cores", "tensor_parallel_size", (2, 8)), ("sequence_parallel_enabled", "sequence_parallel", (True, False))],
)
def test_options_have_other_names(other, name, values):
    assert translate({other: values[0]}) == {name: values[0]} == translate({other: values[0], name: values[0]})
    with pytest.raises(ConfigError) as excinfo:
        translate({other: values[0], name: values[1]})
    assert excinfo.value.details == {"options": [other, name]}


PEER = {
    **{name: value for name, (value, _) in FIXED.items()},
    **dict.fromkeys(WITHOUT_EFFECT, True),
    "num_beams": 2,
    "dynamic_batch_size": True,
}


@pytest.mark.full(days=4)
@pytest.mark.parametrize("kind", ["encoder", "decoder", "seq2seq", "speech"])
def test_every_kind_accepts_every_keyword(kind, checkpoint, tmp_path):
    bert = "bert", "fill-mask"
    model_class, save, shapes = {
        "encoder": (NeuronModelForMaskedLM, lambda: save_tiny_encoder(tmp_path, *bert), tiny_shapes(*bert)),
        "decoder": (NeuronModelForCausalLM, lambda: checkpoint, SHAPES),
        "seq2seq": (NeuronModelForSeq2SeqLM, lambda: seq2seq.save_tiny_seq2seq(tmp_path, "t5"), seq2seq.SHAPES),
        "speech": (
            *(NeuronModelForSpeechSeq2Seq, lambda: speech.save_tiny_speech(tmp_path, "whisper")),
            speech.SHAPES["whisper"],
        ),
    }[kind]
    model = model_class.from_pretrained(save(), export=True, disable_validation=True, **shapes, **PEER)
    expected = 2 if kind in ("seq2seq", "speech") else None
    assert getattr(model.neuron_config, "num_beams", None) == expected


def test_beams_are_ignored_where_unused(caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.options.peer_attributes")
    assert kind_of("text-generation", "llama").plain({"num_beams": 4, "batch_size": 2}) == {"batch_size": 2}
    assert [record.args[0] for record in caplog.records] == ["num_beams"]
    assert kind_of("text2text-generation", "t5").plain({"num_beams": 4}) == {"num_beams": 4}


@pytest.mark.parametrize(
    ("task", "model_type"),
    [("text-generation", "llama"), ("text2text-generation", "t5"), ("automatic-speech-recognition", "whisper")],
)
def test_generative_models_accept_any_batch(task, model_type, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.options.peer_attributes")
    assert kind_of(task, model_type).plain({"dynamic_batch_size": False}) == {}
    assert [record.args[0] for record in caplog.records] == ["dynamic_batch_size"]
    assert kind_of("fill-mask", "bert").plain({"dynamic_batch_size": True}) == {"dynamic_batch_size": True}


def test_length_of_whispers_targets_has_two_names():
    plain = kind_of("automatic-speech-recognition", "whisper").plain
    assert plain({"sequence_length": 8}) == plain({"decoder_sequence_length": 8}) == {"decoder_sequence_length": 8}
    assert plain({"sequence_length": 8, "decoder_sequence_length": 8}) == {"decoder_sequence_length": 8}
    with pytest.raises(ConfigError) as excinfo:
        plain({"sequence_length": 8, "decoder_sequence_length": 16})
    assert excinfo.value.details == {"options": ["sequence_length", "decoder_sequence_length"]}
