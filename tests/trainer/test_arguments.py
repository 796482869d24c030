"""`NeuronTrainingArguments`: its fields, its errors, all problems at once."""

from __future__ import annotations

import dataclasses
import logging

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments

from optimum_neuron import NeuronTrainingArguments
from optimum_neuron.errors import ConfigError
from optimum_neuron.trainer import NeuronArgumentsMixin, TrainingNeuronConfig
from optimum_neuron.trainer.peer_arguments import TRANSLATED, WITHOUT_EFFECT
from tests.raising import raises

ADDED = {
    *("tensor_parallel_size", "pipeline_parallel_size", "pipeline_parallel_num_microbatches", "sequence_parallel"),
    *("context_parallel_size", "zero_1", "stochastic_rounding_enabled", "optimizer_use_master_weights"),
    *("optimizer_use_fp32_grad_acc", "neuron_target", "max_recompiles", "enable_throughput_metrics"),
    *("enable_mfu_metrics", *TRANSLATED, *WITHOUT_EFFECT),
}


def test_inherited_fields_are_kept_and_new_ones_pinned():
    names = {field.name for field in dataclasses.fields(NeuronTrainingArguments)}
    assert names - {field.name for field in dataclasses.fields(TrainingArguments)} == ADDED
    assert {field.name for field in dataclasses.fields(TrainingArguments)} <= names


def test_every_added_field_has_help_text():
    (arguments,) = HfArgumentParser(NeuronTrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", "out", "--optimizer_use_master_weights", "False", "--max_recompiles", "3"]
    )
    assert arguments.optimizer_use_master_weights is False and arguments.max_recompiles == 3
    assert all(field.metadata["help"] for field in dataclasses.fields(NeuronArgumentsMixin))


def test_device_and_layout():
    arguments = NeuronTrainingArguments(output_dir="out", activation_checkpointing=True)
    assert arguments.device == torch.device("neuron:0")
    assert arguments.trn_config == TrainingNeuronConfig(gradient_checkpointing=True)


def test_host_device_can_be_selected(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    with raises(ConfigError, option="ACCELERATE_USE_CPU"):
        NeuronTrainingArguments(output_dir="out")
    assert NeuronTrainingArguments(output_dir="out", use_cpu=True).device.type == "cpu"


def test_context_parallelism_by_upstreams_name():
    from accelerate import ParallelismConfig

    with raises(ConfigError, option="parallelism_config"):
        NeuronTrainingArguments(output_dir="out", parallelism_config=ParallelismConfig(cp_size=2))


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"fp16": True}, {"option": "fp16"}),
        ({"tf32": True}, {"option": "tf32"}),
        ({"torch_compile_backend": "inductor"}, {"option": "torch_compile_backend"}),
        ({"max_recompiles": -1}, {"option": "max_recompiles", "value": -1}),
        ({"tensor_parallel_size": 0}, {"option": "tensor_parallel_size", "value": 0}),
        ({"tensor_parallel_size": "2"}, {"option": "tensor_parallel_size", "value": "2"}),
        ({"context_parallel_size": 0}, {"option": "context_parallel_size", "value": 0}),
        ({"neuron_target": "trn9"}, {"name": "trn9"}),
        ({"neuron_target": "inf1"}, {"target": "inf1"}),
        (
            {"stochastic_rounding_enabled": True, "torch_compile": True},
            ["stochastic_rounding_enabled", "torch_compile"],
        ),
        ({"stochastic_rounding_enabled": True, "use_cpu": True}, ["stochastic_rounding_enabled", "use_cpu"]),
        ({"tensor_parallel_size": 2}, {"option": "world_size", "choices": [2]}),
        ({"pipeline_parallel_size": 3}, {"option": "world_size", "choices": [3]}),
        ({"context_parallel_size": 2}, {"option": "world_size", "choices": [2]}),
        ({"context_parallel_size": 2, "enable_mfu_metrics": True}, ["enable_mfu_metrics", "context_parallel_size"]),
        ({"pipeline_parallel_num_microbatches": 4}, {"option": "pipeline_parallel_num_microbatches", "value": 4}),
        ({"zero_1": True, "fsdp": True}, ["fsdp", "zero_1"]),
        ({"tensor_parallel_size": 2, "use_cpu": True}, ["use_cpu", "tensor_parallel_size"]),
    ],
    ids=str,
)
def test_unsupported_options(options, details):
    details = {"options": details} if isinstance(details, list) else details
    with raises(ConfigError, **details):
        NeuronTrainingArguments(output_dir="out", **options)


def test_all_problems_are_listed_together():
    with pytest.raises(ConfigError) as error:
        NeuronTrainingArguments(
            output_dir="out", fp16=True, pipeline_parallel_num_microbatches=4, neuron_target="trn9", max_recompiles=-2
        )
    parts, recompiles, target, precision = error.value.details["problems"]
    options = [problem["details"]["option"] for problem in (parts, recompiles, precision)]
    assert options == ["pipeline_parallel_num_microbatches", "max_recompiles", "fp16"] and "trn9" in target["message"]


@pytest.mark.parametrize(
    ("option", "is_kept"), [("sequence_parallel", True), ("zero_1", False)], ids=["sequence_parallel", "zero_1"]
)
def test_split_over_one_core_changes_nothing(option, is_kept, caplog):
    caplog.set_level(logging.INFO, "optimum_neuron")
    arguments = NeuronTrainingArguments(output_dir="out", **{option: True})
    assert getattr(arguments, option) is is_kept and not arguments.trn_config.spreads_model
    assert any(f"{option}=True changes nothing" in record.message for record in caplog.records)


def test_target_of_another_process(monkeypatch):
    torch.zeros(1, device="neuron")
    with raises(ConfigError, option="neuron_target", present="inf2.xlarge"):
        NeuronTrainingArguments(output_dir="out", neuron_target="trn1.32xlarge")
    assert NeuronTrainingArguments(output_dir="out", neuron_target="inf2").device.type == "neuron"


def test_target_is_simulated_from_first_use_on(python):
    result = python(
        """
import torch
from optimum_neuron import NeuronTrainingArguments
NeuronTrainingArguments(output_dir="out", neuron_target="trn2.48xlarge")
print(torch.neuron.get_device_properties().name)
"""
    )
    assert result.stdout.splitlines()[-1:] == ["trn2"], result


def test_missing_module_of_transformers(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch_neuronx" else find(name, *rest)
    )
    monkeypatch.setattr(NeuronTrainingArguments, "device", torch.device("cpu"))
    with raises(ConfigError, device="cpu", missing="torch_neuronx"):
        NeuronTrainingArguments(output_dir="out")


def test_fields_mix_into_other_configurations():
    @dataclasses.dataclass
    class Configuration(NeuronArgumentsMixin, TrainingArguments):
        max_length: int = 512

    config = Configuration("out", max_length=8, neuron_target="inf2")
    assert config.output_dir == "out" and config.trn_config.tensor_parallel_size == 1
    with raises(ConfigError, value=1, choices=[2]):
        Configuration("out", context_parallel_size=2)
