"""Exports for Inf1: lookups and caches on the CPU, all of float32 in bfloat16; other kinds of models are refused."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    MarianMTModel,
    ResNetConfig,
    ResNetForImageClassification,
    WhisperConfig,
)

from optimum_neuron import (
    NeuronModelForImageClassification,
    NeuronModelForSeq2SeqLM,
    NeuronModelForSequenceClassification,
    check_model,
    main_export,
)
from optimum_neuron.errors import ConfigError, TargetMismatchError
from optimum_neuron.exporters import neuron_config
from optimum_neuron.simulator import estimate
from optimum_neuron.sources import load_source
from tests.raising import raises
from tests.seq2seq import save_tiny_seq2seq

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    BertForSequenceClassification(BertConfig(**SIZES, vocab_size=99, num_labels=2)).save_pretrained(folder)
    return folder


def test_encoder_runs_on_inf1_only(bert, tmp_path, monkeypatch):
    options = {"batch_size": 1, "sequence_length": 16, "optlevel": "1"}
    main_export(bert, tmp_path / "inf1", task="text-classification", instance_type="inf1.xlarge", **options)
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf1.xlarge")
    model = NeuronModelForSequenceClassification.from_pretrained(tmp_path / "inf1")
    assert (model.config.neuron["target"], model.config.neuron["auto_cast"]) == ("inf1", "all")
    ids = torch.arange(16)[None]
    mine = model(input_ids=ids, attention_mask=torch.ones_like(ids), token_type_ids=torch.zeros_like(ids)).logits
    with torch.no_grad():
        theirs = BertForSequenceClassification.from_pretrained(bert).eval()(ids).logits
    torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
    model.close()
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf2.xlarge")
    with pytest.raises(TargetMismatchError) as error:
        NeuronModelForSequenceClassification.from_pretrained(tmp_path / "inf1")
    assert error.value.details["compiled_for"] == "inf1"


@pytest.mark.parametrize(
    ("chosen", "auto_cast"),
    [
        ({}, "all"),  # neuron-cc command line reference: "all" is the default of --fast-math
        ({"torch_dtype": "float32"}, "all"),
        ({"auto_cast": "matmul"}, "matmul"),
        ({"torch_dtype": torch.bfloat16}, "none"),
    ],
)
def test_export_check_and_estimate_round_alike(bert, chosen, auto_cast):
    options = {"batch_size": 1, "sequence_length": 16}
    compiled = {"task": "text-classification", "instance_type": "inf1", **chosen}
    exported, _ = neuron_config(load_source(bert), options | compiled)
    checked = check_model(bert, **options, **compiled).config
    assert exported.auto_cast == checked.auto_cast == auto_cast
    dtype = {"dtype": exported.torch_dtype, "auto_cast": chosen.get("auto_cast")}
    estimated = estimate(str(bert), task="text-classification", instance="inf1.xlarge", **options, **dtype)
    assert f"weights in {exported.torch_dtype}, auto_cast {auto_cast}" in " ".join(estimated.assumptions)


def test_operators_that_it_lacks_are_refused_unless_the_host_may_run_them(bert, tmp_path):
    with pytest.raises(ConfigError) as error:
        main_export(bert, tmp_path / "out", task="fill-mask", instance_type="inf1", auto_cast_type="tf32")
    assert error.value.details["target"] == "inf1"


def test_convolutional_network_runs_on_inf1(tmp_path, monkeypatch):
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": 4}
    torch.manual_seed(0)
    original = ResNetForImageClassification(ResNetConfig(**sizes)).eval()
    original.save_pretrained(tmp_path / "resnet")
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf1.xlarge")
    model = NeuronModelForImageClassification.from_pretrained(
        tmp_path / "resnet", export=True, batch_size=2, height=32, width=32, optlevel="1"
    )
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(images).logits, original(images).logits, rtol=2e-2, atol=2e-2)
    assert model.config.neuron["target"] == "inf1"
    model.close()


@pytest.mark.full(days=4)
def test_marian_translates_on_inf1(tmp_path, monkeypatch):
    folder = save_tiny_seq2seq(tmp_path / "marian", "marian")
    monkeypatch.setenv("OPTIMUM_NEURON_INSTANCE", "inf1.xlarge")
    shapes = {"batch_size": 1, "sequence_length": 16, "decoder_sequence_length": 12, "optlevel": "1"}
    model = NeuronModelForSeq2SeqLM.from_pretrained(folder, export=True, **shapes)
    original = MarianMTModel.from_pretrained(folder).eval()
    ids, labels = torch.arange(3, 12)[None], torch.arange(3, 9)[None]
    with torch.no_grad():
        mine, theirs = (each(input_ids=ids, labels=labels).logits for each in (model, original))
    scale = theirs.abs().max()
    torch.testing.assert_close(mine / scale, theirs / scale, rtol=2e-2, atol=2e-2)
    assert model.generate(ids, max_new_tokens=6).shape[0] == 1
    model.close()


@pytest.mark.parametrize("config", [LlamaConfig, WhisperConfig])
def test_kinds_that_are_not_for_inf1_are_refused_by_check_and_export(tmp_path, config):
    architecture = {LlamaConfig: "LlamaForCausalLM", WhisperConfig: "WhisperForConditionalGeneration"}[config]
    config(architectures=[architecture]).save_pretrained(tmp_path)
    for refused in (
        lambda: check_model(tmp_path, instance_type="inf1"),
        lambda: main_export(tmp_path, tmp_path / "out", instance_type="inf1"),
    ):
        with raises(ConfigError, target="inf1") as error:
            refused()
        assert "inf2" in error.value.details["targets"]


def test_check_of_an_encoder_says_what_runs_on_the_host(bert):
    report = check_model(bert, task="text-classification", instance_type="inf1", sequence_length=16)
    verdicts = {row.calls.op: str(row.calls.verdict) for row in report.operators}
    assert verdicts["aten.embedding.default"] == "host" and verdicts["aten.linear.default"] == "native"
