"""Unknown keywords: every function names the nearest one and where all are listed, and carries the list as data."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from optimum_neuron import (
    NeuronConfig,
    NeuronModelForCausalLM,
    NeuronModelForSequenceClassification,
    NeuronTrainingArguments,
    check_model,
)
from optimum_neuron.errors import ConfigError
from optimum_neuron.exporters import main_export
from optimum_neuron.kinds.diffusion import NeuronDiffusionConfig
from optimum_neuron.options.option import ChecksKeywords, check_known, checks_keywords
from optimum_neuron.simulator import estimate
from optimum_neuron.tracing import trace

DOORS = {
    "from_pretrained": ("batchsize", "batch_size", lambda path, k: NeuronModelForCausalLM.from_pretrained(path, **k)),
    "encoder": (
        "batchsize",
        "batch_size",
        lambda path, k: NeuronModelForSequenceClassification.from_pretrained(path, **k),
    ),
    "main_export": ("sequencelength", "sequence_length", lambda path, k: main_export(path, path / "out", **k)),
    "check_model": ("sequencelength", "sequence_length", lambda path, k: check_model(path, **k)),
    "estimate": ("batchsize", "batch_size", lambda path, k: estimate(path, **k)),
    "NeuronConfig": ("batchsize", "batch_size", lambda path, k: NeuronConfig(**k)),
    "from_dict": ("batchsize", "batch_size", lambda path, k: NeuronConfig.from_dict(k)),
    "NeuronDiffusionConfig": ("hight", "height", lambda path, k: NeuronDiffusionConfig(**k)),
    "training": ("learning_rat", "learning_rate", lambda path, k: NeuronTrainingArguments(output_dir=path, **k)),
    "trace": ("compiler_arg", "compiler_args", lambda path, k: trace(torch.nn.ReLU(), torch.ones(1), **k)),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_names_the_nearest_keyword(door, checkpoint):
    wrong, near, call = DOORS[door]
    with pytest.raises(ConfigError) as error:
        call(checkpoint, {wrong: 1})
    details = error.value.details
    assert details["options"] == [wrong] and near in details["choices"]
    assert near in error.value.message
    assert len(error.value.hint) < 120 and str(len(details["choices"])) in error.value.hint


def test_command_line(cli, checkpoint):
    result = cli("export", "neuron", "-m", str(checkpoint), "out", "--batchsize", "1", "--json")
    error = result.json["error"]
    assert result.code == 2 and "--batch_size" in error["message"] and "--batch_size" in error["details"]["choices"]


def test_few_names_are_listed_and_none_are_removed():
    with pytest.raises(ConfigError) as error:
        check_known(["x"], ["b", "a"], what="a call")
    assert error.value.hint == "Use a, b."
    with pytest.raises(ConfigError) as error:
        check_known(["x"], [], what="a call")
    assert error.value.hint == "Remove them."


def test_checked_classes_and_functions_stay_what_they_are():
    config = NeuronConfig(batch_size=3, sequence_length=64)
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
        assert other.to_dict() == config.to_dict()

    class Other(ChecksKeywords):
        def __init__(self, **options):
            self.options = options

    assert Other(anything=1).options == {"anything": 1}
    assert checks_keywords(lambda **options: options)(a=1) == {"a": 1}
    assert trace.__doc__ is not None
