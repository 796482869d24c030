"""`NeuronTrainingArguments`: what it adds, what it refuses, all problems at once."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import HfArgumentParser, TrainingArguments

from optimum_neuron import NeuronTrainingArguments
from optimum_neuron.errors import ConfigError
from optimum_neuron.trainer import NeuronArgumentsMixin, TrainingNeuronConfig
from optimum_neuron.trainer.peer_arguments import TRANSLATED, WITHOUT_EFFECT

ADDED = {
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "pipeline_parallel_num_microbatches",
    "sequence_parallel",
    "context_parallel_size",
    "zero_1",
    "stochastic_rounding_enabled",
    "optimizer_use_master_weights",
    "optimizer_use_fp32_grad_acc",
    "neuron_target",
    "max_recompiles",
    "enable_throughput_metrics",
    "enable_mfu_metrics",
    *TRANSLATED,
    *WITHOUT_EFFECT,
}


def test_nothing_is_removed_and_what_is_added_is_pinned():
    names = {field.name for field in dataclasses.fields(NeuronTrainingArguments)}
    assert names - {field.name for field in dataclasses.fields(TrainingArguments)} == ADDED
    assert {field.name for field in dataclasses.fields(TrainingArguments)} <= names


def test_every_added_field_has_a_help_text():
    (arguments,) = HfArgumentParser(NeuronTrainingArguments).parse_args_into_dataclasses(
        ["--output_dir", "out", "--optimizer_use_master_weights", "False", "--max_recompiles", "3"]
    )
    assert arguments.optimizer_use_master_weights is False and arguments.max_recompiles == 3
    assert all(field.metadata["help"] for field in dataclasses.fields(NeuronArgumentsMixin))


def test_the_device_and_the_layout():
    arguments = NeuronTrainingArguments(output_dir="out", activation_checkpointing=True)
    assert arguments.device == torch.device("neuron:0")
    assert arguments.trn_config == TrainingNeuronConfig(gradient_checkpointing=True)


def test_the_host_can_be_asked_for():
    assert NeuronTrainingArguments(output_dir="out", use_cpu=True).device.type == "cpu"


def test_accelerate_was_told_to_use_the_host(monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")
    with pytest.raises(ConfigError, match="ACCELERATE_USE_CPU.*leave --cpu out, or pass use_cpu=True"):
        NeuronTrainingArguments(output_dir="out")
    assert NeuronTrainingArguments(output_dir="out", use_cpu=True).device.type == "cpu"


def test_context_parallelism_by_upstreams_name():
    from accelerate import ParallelismConfig

    with pytest.raises(ConfigError, match=r"ParallelismConfig\(cp_size=2\).*pass context_parallel_size=2"):
        NeuronTrainingArguments(output_dir="out", parallelism_config=ParallelismConfig(cp_size=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fp16": True}, "fp16=True on inf2: mixed precision with float16"),
        ({"tf32": True}, "tf32=True on inf2: a switch of CUDA devices"),
        ({"torch_compile_backend": "inductor"}, "leave torch_compile_backend out"),
        ({"max_recompiles": -1}, "max_recompiles=-1: too small"),
        ({"tensor_parallel_size": 0}, "tensor_parallel_size=0: too small"),
        ({"neuron_target": "trn9"}, "not a family or an instance, did you mean 'trn"),
        ({"neuron_target": "inf1"}, "cannot be compiled for inf1"),
        ({"stochastic_rounding_enabled": True, "torch_compile": True}, "with torch_compile: two arithmetics"),
        ({"stochastic_rounding_enabled": True, "use_cpu": True}, "with use_cpu: two arithmetics"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2 with 1 process: .*start 2 processes"),
        ({"pipeline_parallel_size": 3}, "pipeline_parallel_size=3 with 1 process: .*start 3 processes"),
        ({"context_parallel_size": 2}, "context_parallel_size=2 with 1 process: .*start 2 processes"),
        ({"tensor_parallel_size": "2"}, "tensor_parallel_size='2': a str"),
        ({"context_parallel_size": 0}, "context_parallel_size=0: too small"),
        (
            {"context_parallel_size": 2, "enable_mfu_metrics": True},
            "enable_mfu_metrics with context_parallel_size=2: a layout that the simulator has no times for",
        ),
        ({"zero_1": True}, "zero_1=True with 1 process: one copy of the model.*start 2 processes"),
        ({"pipeline_parallel_num_microbatches": 4}, "num_microbatches=4: pipeline_parallel_size=1"),
        ({"zero_1": True, "fsdp": True}, "fsdp=True with zero_1=True: two ways to split optimizer states"),
        ({"sequence_parallel": True}, "sequence_parallel=True: tensor_parallel_size=1"),
        ({"tensor_parallel_size": 2, "use_cpu": True}, "use_cpu with tensor_parallel_size"),
    ],
    ids=str,
)
def test_refusals(options, message):
    with pytest.raises(ConfigError, match=message):
        NeuronTrainingArguments(output_dir="out", **options)


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        NeuronTrainingArguments(
            output_dir="out", fp16=True, sequence_parallel=True, neuron_target="trn9", max_recompiles=-2
        )
    assert [line.split("=")[0] for line in str(caught.value).splitlines()] == [
        "sequence_parallel",
        "max_recompiles",
        "instance_type",
    ]


def test_a_target_that_this_process_does_not_simulate(monkeypatch):
    torch.zeros(1, device="neuron")
    with pytest.raises(ConfigError, match="this process has a core of inf2"):
        NeuronTrainingArguments(output_dir="out", neuron_target="trn1.32xlarge")
    assert NeuronTrainingArguments(output_dir="out", neuron_target="inf2").device.type == "neuron"


def test_a_target_is_simulated_from_the_first_use_on(python):
    done = python(
        """
import torch
from optimum_neuron import NeuronTrainingArguments
NeuronTrainingArguments(output_dir="out", neuron_target="trn2.48xlarge")
print(torch.neuron.get_device_properties().name)
""",
    )
    assert done.stdout.splitlines()[-1:] == ["trn2"], done


def test_without_the_module_that_transformers_looks_for(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch_neuronx" else find(name, *rest)
    )
    monkeypatch.setattr(NeuronTrainingArguments, "device", torch.device("cpu"))
    with pytest.raises(ConfigError, match="pip install optimum-neuron-sim-sdk.*pip install ./sdk"):
        NeuronTrainingArguments(output_dir="out")


def test_the_fields_mix_into_other_configurations():
    @dataclasses.dataclass
    class Configuration(NeuronArgumentsMixin, TrainingArguments):
        max_length: int = 512

    made = Configuration("out", max_length=8, neuron_target="inf2")
    assert made.output_dir == "out" and made.trn_config.tensor_parallel_size == 1
    with pytest.raises(ConfigError, match="context_parallel_size"):
        Configuration("out", context_parallel_size=2)
