"""Moves between instances: operators that change their place, numbers, memory, and what a user has to do."""

from __future__ import annotations

import json

import pytest
from transformers import BertConfig, LlamaConfig

from optimum_neuron.checking import check_migration
from optimum_neuron.errors import ConfigError
from tests.raising import raises

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    BertConfig(**SIZES, vocab_size=99, architectures=["BertForSequenceClassification"]).save_pretrained(folder)
    return folder


def test_encoder_moves_its_lookups_to_the_core(bert):
    report = check_migration(bert, "inf1", "inf2", sequence_length=16)
    moves = {row.op: (row.before, row.after, row.num_calls) for row in report.moved}
    assert moves["aten.embedding.default"] == ("CPU", "core", 3)
    assert all(row.before == row.after == "core" for row in report.operators if row.op == "aten.linear.default")
    assert report.facts["float32"] == ("everything in bf16", "as in the model")
    assert report.facts["memory of a chip"] == ("8 GiB DRAM", "32 GiB HBM")
    assert report.facts["memory of a core"] == ("shared by the cores of the chip", "16 GiB")
    compile_again, lookups, numbers, scripts = report.changes
    assert "NeuronCore-v1" in compile_again and "aten.embedding" in lookups
    assert "auto_cast=all" in numbers and "torch_neuronx" in scripts
    data = json.loads(json.dumps(report.to_dict()))
    assert (data["from"], data["to"], data["before"]["target"]["value"]) == ("inf1", "inf2", "inf1")
    assert "NeuronCore-v1" in report._repr_html_() and "<iframe" in report._repr_html_()


@pytest.mark.full(days=2)
def test_a_model_that_inf1_cannot_run_is_reported(tmp_path):
    LlamaConfig(**SIZES, vocab_size=99, architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    report = check_migration(tmp_path, "inf1", "inf2", sequence_length=16)
    assert report.before is None and "text-generation" in report.refused_because
    assert report.moved == () and report.changes[0].startswith("Export the model")
    with raises(ConfigError, target="inf1"):
        check_migration(tmp_path, "inf2", "inf1", sequence_length=16)


def test_instances_of_one_generation_need_no_new_compile(bert):
    report = check_migration(bert, "trn1", "inf2", sequence_length=16, torch_dtype="bfloat16")
    assert report.changes == () and report.moved == ()
    assert report.facts["float32"] == ("weights are bfloat16",) * 2


@pytest.mark.parametrize("source", ["inf1", "trn1"])
def test_slips_are_not_taken_for_what_an_instance_lacks(bert, source):
    with raises(ConfigError, options=["sequence_lenght"]):
        check_migration(bert, source, "inf2", sequence_lenght=16)
