"""Arguments of Optimum Neuron are translated, or reported."""

from __future__ import annotations

import dataclasses
import logging
import os

import pytest
from transformers import HfArgumentParser

from optimum_neuron import NeuronTrainingArguments
from optimum_neuron.errors import ConfigError
from optimum_neuron.trainer.peer_arguments import TRANSLATED, WITHOUT_EFFECT, PeerArgumentsMixin


def test_each_argument_is_translated_or_reported():
    assert {field.name for field in dataclasses.fields(PeerArgumentsMixin)} == {*TRANSLATED, *WITHOUT_EFFECT}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_argument_without_effect_is_reported_once(name, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.options.peer_attributes")
    NeuronTrainingArguments(output_dir="out")
    assert not caplog.records
    arguments = NeuronTrainingArguments(output_dir="out", **{name: False})
    (record,) = caplog.records
    assert record.args[0] == name and getattr(arguments, name) is False


@pytest.mark.parametrize("words", [["--overwrite_output_dir"], ["--overwrite_output_dir", "true"]])
def test_switch_needs_no_value_on_command_line(words):
    (arguments,) = HfArgumentParser(NeuronTrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", "out", *words]
    )
    assert arguments.overwrite_output_dir is True and arguments.use_xser is None


def test_evaluation_strategy_is_that_of_older_transformers():
    for name in ("epoch", "no"):
        arguments = NeuronTrainingArguments(output_dir="out", evaluation_strategy=name)
        assert arguments.eval_strategy == NeuronTrainingArguments(output_dir="out", eval_strategy=name).eval_strategy


def test_warmup_ratio_is_a_share_of_steps():
    arguments = NeuronTrainingArguments(output_dir="out", warmup_ratio=0.1)
    assert arguments.get_warmup_steps(50) == 5
    assert dataclasses.replace(arguments, learning_rate=1.0).get_warmup_steps(50) == 5


@pytest.mark.parametrize(
    "options",
    [
        {"warmup_ratio": 1.5},
        {"warmup_ratio": 0.1, "warmup_steps": 3},
        {"evaluation_strategy": "epoch", "eval_strategy": "steps"},
        {"disable_sequence_parallel": True, "sequence_parallel": True},
    ],
    ids=str,
)
def test_contradictions(options):
    with pytest.raises(ConfigError) as error:
        NeuronTrainingArguments(output_dir="out", tensor_parallel_size=2, **options)
    assert error.value.details == options


@pytest.mark.parametrize(("disabled", "cores", "expected"), [(False, 2, True), (True, 2, False), (False, 1, False)])
def test_sequence_parallelism_can_be_disabled(disabled, cores, expected, monkeypatch):
    monkeypatch.setattr("optimum_neuron.trainer.arguments.require_processes", lambda *arguments: None)
    arguments = NeuronTrainingArguments(
        output_dir="out", disable_sequence_parallel=disabled, tensor_parallel_size=cores
    )
    assert arguments.trn_config.sequence_parallel_enabled is expected


def test_tensorboard_folder_matches_transformers(monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "before")
    NeuronTrainingArguments(output_dir="out", logging_dir=str(tmp_path))
    assert os.environ["TENSORBOARD_LOGGING_DIR"] == str(tmp_path)
