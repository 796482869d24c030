"""`NeuronAccelerator` in a stock loop of accelerate, against the same loop on the CPU; its arguments; the parser."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Iterator

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from transformers import HfArgumentParser

from optimum_neuron import NeuronTrainingArguments
from optimum_neuron.errors import ConfigError
from optimum_neuron.trainer import NeuronAccelerator, TrainingNeuronConfig
from optimum_neuron.trainer.accelerator import NeuronAcceleratorState
from tests.raising import raises
from tests.trainer.accelerated import loop
from tests.trainer.conftest import spawn


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.fixture
def on_cpu(llama):
    losses, norms, *_ = loop(Accelerator(cpu=True), llama)
    AcceleratorState._reset_state(True)
    return losses, norms


@pytest.mark.parametrize(("precision", "tolerance"), [(None, 1e-4), ("AUTOCAST_BF16", 0.05), ("FULL_BF16", 0.05)])
def test_stock_loop_losses_match_cpu(llama, on_cpu, precision, tolerance):
    accelerator = NeuronAccelerator(mixed_precision=precision)
    losses, norms, model, _ = loop(accelerator, llama)
    assert accelerator.device.type == "neuron" and losses == sorted(losses, reverse=True)
    assert losses == pytest.approx(on_cpu[0], rel=tolerance) and norms == pytest.approx(on_cpu[1], rel=4 * tolerance)
    expected = torch.bfloat16 if precision == "FULL_BF16" else torch.float32
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


@pytest.mark.parametrize("precision", ["no", "FULL_BF16"])
def test_saved_state_is_loaded(llama, tmp_path, precision):
    accelerator = NeuronAccelerator(mixed_precision=precision)
    _, _, model, optimizer = loop(accelerator, llama)
    accelerator.save_state(str(tmp_path / "state"))
    before = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    step(accelerator, model, optimizer)
    once = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    accelerator.load_state(str(tmp_path / "state"))
    assert all(torch.equal(actual.cpu(), expected) for actual, expected in zip(model.parameters(), before, strict=True))
    step(accelerator, model, optimizer)
    assert all(torch.equal(actual.cpu(), expected) for actual, expected in zip(model.parameters(), once, strict=True))


def step(accelerator, model, optimizer):
    ids = torch.arange(16, device=accelerator.device)[None]
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    optimizer.step()
    optimizer.zero_grad()


def test_state_has_layout():
    layout = TrainingNeuronConfig(gradient_checkpointing=True)
    accelerator = NeuronAccelerator(trn_config=layout)
    assert accelerator.trn_config is accelerator.state.trn_config is layout
    assert NeuronAcceleratorState().trn_config is layout and AcceleratorState().device.type == "neuron"


def test_cpu_that_the_process_chose_before_is_kept_with_a_warning(caplog):
    PartialState(cpu=True)
    assert NeuronAccelerator().device.type == "cpu"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_missing_compiler_is_the_reason(monkeypatch):
    for module in ("accelerate.state", "optimum_neuron.trainer.accelerator"):
        monkeypatch.setattr(f"{module}.is_neuron_available", lambda: False)
    monkeypatch.setattr("optimum_neuron.compiler.lower.probe_compiler", lambda: None)
    with raises(ConfigError, option="use_cpu", device="cpu"):
        NeuronAccelerator()


def test_gradient_checkpointing_is_enabled(llama):
    accelerator = NeuronAccelerator(trn_config=TrainingNeuronConfig(gradient_checkpointing=True))
    assert accelerator.prepare(copy.deepcopy(llama)).is_gradient_checkpointing
    with raises(ConfigError, option="gradient_checkpointing"):
        accelerator.prepare(torch.nn.Linear(2, 2))


def test_arguments_without_effect_are_reported(caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.trainer.accelerator")
    NeuronAccelerator(zero_1=True, autocast_backend="xla", gradient_accumulation_steps=2)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("options", "details"),
    [
        ({"mixed_precision": "fp16"}, {"option": "mixed_precision", "value": "fp16"}),
        ({"autocast_backend": "cuda"}, {"option": "autocast_backend", "value": "cuda"}),
        ({"trn_config": TrainingNeuronConfig(tensor_parallel_size=2)}, {"options": ["tensor_parallel_size"]}),
        ({"trn_config": TrainingNeuronConfig(fsdp=True)}, {"option": "fsdp"}),
    ],
    ids=str,
)
def test_unsupported_options(options, details):
    with raises(ConfigError, **details):
        NeuronAccelerator(**options)


def test_arguments_from_command_line_and_files(tmp_path):
    options = {"output_dir": str(tmp_path), "learning_rate": 0.5, "enable_mfu_metrics": True, "warmup_ratio": 0.25}
    words = [f"--output_dir={tmp_path}", "--learning_rate=0.5", "--enable_mfu_metrics", "--warmup_ratio", "0.25"]
    (tmp_path / "arguments.json").write_text(json.dumps(options))
    (tmp_path / "arguments.yaml").write_text(
        "\n".join(f"{name}: {json.dumps(value)}" for name, value in options.items())
    )
    parser = HfArgumentParser(NeuronTrainingArguments)
    results = [
        *parser.parse_args_into_dataclasses(words),
        *parser.parse_json_file(str(tmp_path / "arguments.json")),
        *parser.parse_yaml_file(str(tmp_path / "arguments.yaml")),
        *parser.parse_dict(options),
    ]
    for arguments in results:
        assert isinstance(arguments, NeuronTrainingArguments)
        assert (arguments.learning_rate, arguments.enable_mfu_metrics, arguments.warmup_steps) == (0.5, True, 0.25)


def test_processes_divide_optimizer(llama, on_cpu, tmp_path):
    llama.save_pretrained(tmp_path / "model")
    process = spawn("-m", "tests.trainer.accelerated", str(tmp_path), num_processes=2)
    assert process.returncode == 0, process.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert [result["device"] for result in results] == ["neuron", "neuron"]
    for result in results:
        assert result["losses"] == pytest.approx(on_cpu[0], rel=1e-4)
        assert result["norms"] == pytest.approx(on_cpu[1], rel=1e-3)
    replicated, split = (result["num_states"] for result in results)
    assert replicated == 2 * llama.num_parameters() and split < 0.6 * replicated
