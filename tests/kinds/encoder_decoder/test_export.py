"""From a shell and from Python, an encoder-decoder's task is inferred and its folder is complete."""

from __future__ import annotations

import pytest

from optimum_neuron import NeuronModelForSeq2SeqLM, main_export
from optimum_neuron.errors import ConfigError, ModelError
from tests.raising import raises
from tests.seq2seq import save_tiny_seq2seq
from tests.tiny import write_config


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_tiny_seq2seq(tmp_path_factory.mktemp("checkpoint") / "bart", "bart")


def test_command_line_export(cli, checkpoint, tmp_path):
    words = ["--batch_size", "2", "--sequence_length", "8,16", "--decoder_sequence_length", "12", "-O1", "--json"]
    result = cli("export", "neuron", "-m", str(checkpoint), *words, str(tmp_path / "out"))
    assert result.code == 0, result.stderr
    report = result.json
    assert report["task"]["value"] == "text2text-generation"
    assert report["task"]["reason"] == "config.architectures has BartForConditionalGeneration"
    names = [graph["name"] for graph in report["graphs"]]
    assert names == ["encode_8", "prefill_8", "encode_16", "prefill_16", "decode"]
    assert all(row["ok"] for row in report["validation"])
    model = NeuronModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert (model.batch_size, model.source_buckets, model.decoder_sequence_length) == (2, (8, 16), 12)


@pytest.mark.full(days=2)
def test_check_counts_compiled_graphs(cli, checkpoint):
    words = ["--sequence_length", "16", "--decoder_sequence_length", "12", "--json"]
    result = cli("neuron", "check", str(checkpoint), *words)
    assert result.code == 0, result.stderr
    assert [graph["name"] for graph in result.json["graphs"]] == ["encode_16", "prefill_16", "decode"]


def test_custom_attention_is_refused(tmp_path):
    folder = write_config(tmp_path / "led", model_type="led", architectures=["LEDForConditionalGeneration"])
    with raises(ModelError, task="text2text-generation", model_type="led"):
        main_export(folder, tmp_path / "out", optlevel="1")


def test_joined_models_are_refused(tmp_path):
    parts = {"encoder": {"model_type": "bert"}, "decoder": {"model_type": "bert"}}
    folder = write_config(tmp_path / "two", model_type="encoder-decoder", is_encoder_decoder=True, **parts)
    with raises(ModelError, task="text2text-generation", model_type="encoder-decoder"):
        main_export(folder, tmp_path / "out", task="text2text-generation", optlevel="1")


def test_options_of_other_models_are_refused(checkpoint):
    with raises(ConfigError, options=["prefill_buckets"]):
        NeuronModelForSeq2SeqLM.from_pretrained(checkpoint, export=True, prefill_buckets=(8,))
    with raises(ConfigError, option="sequence_length", value=64, limit=40):
        NeuronModelForSeq2SeqLM.from_pretrained(checkpoint, export=True, sequence_length=64)
