"""Exports for Inf1: an encoder with its lookups on the CPU and all of float32 in bfloat16; other kinds are refused."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from optimum_neuron import NeuronModelForSequenceClassification, main_export
from optimum_neuron.errors import ConfigError, TargetMismatchError

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


def test_operators_that_it_lacks_are_refused_unless_the_host_may_run_them(bert, tmp_path):
    with pytest.raises(ConfigError) as error:
        main_export(bert, tmp_path / "out", task="fill-mask", instance_type="inf1", auto_cast_type="tf32")
    assert error.value.details["target"] == "inf1"
