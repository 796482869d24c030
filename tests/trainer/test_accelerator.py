"""`NeuronAccelerator` in a stock loop of accelerate, against the same loop on the CPU; its arguments; the parser."""

from __future__ import annotations

import copy
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import HfArgumentParser

from optimum_neuron import NeuronTrainingArguments
from optimum_neuron.errors import ConfigError
from optimum_neuron.trainer import TrainingNeuronConfig
from optimum_neuron.trainer.accelerator import NeuronAccelerator, NeuronAcceleratorState

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


def loop(accelerator, whole, steps=4):
    """A loop as accelerate's documentation has it; losses, norms, the model and the optimizer."""
    model = copy.deepcopy(whole)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    rows = torch.stack([torch.arange(16) + row for row in range(2 * steps)])
    loader = torch.utils.data.DataLoader(rows, batch_size=2)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses, norms = [], []
    for ids in loader:
        assert ids.device.type == accelerator.device.type
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        norms.append(float(accelerator.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(float(accelerator.gather(loss.detach().reshape(1)).mean()))
    return losses, norms, model, optimizer


@pytest.fixture
def on_cpu(llama):
    found = loop(Accelerator(cpu=True), llama)[:2]
    AcceleratorState._reset_state(True)
    return found


@pytest.mark.parametrize(("precision", "tolerance"), [(None, 1e-4), ("AUTOCAST_BF16", 0.05), ("FULL_BF16", 0.05)])
def test_a_stock_loop_has_the_losses_of_the_cpu(llama, on_cpu, precision, tolerance):
    accelerator = NeuronAccelerator(mixed_precision=precision)
    losses, norms, model, _ = loop(accelerator, llama)
    assert accelerator.device.type == "neuron" and losses == sorted(losses, reverse=True)
    assert losses == pytest.approx(on_cpu[0], rel=tolerance) and norms == pytest.approx(on_cpu[1], rel=4 * tolerance)
    expected = torch.bfloat16 if precision == "FULL_BF16" else torch.float32
    assert {parameter.dtype for parameter in model.parameters()} == {expected}


@pytest.mark.parametrize("precision", ["no", "FULL_BF16"])
def test_a_saved_state_is_loaded(llama, tmp_path, precision):
    accelerator = NeuronAccelerator(mixed_precision=precision)
    _, _, model, optimizer = loop(accelerator, llama)
    accelerator.save_state(str(tmp_path / "state"))
    before = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    step(accelerator, model, optimizer)
    once = [parameter.detach().cpu().clone() for parameter in model.parameters()]
    accelerator.load_state(str(tmp_path / "state"))
    assert all(torch.equal(mine.cpu(), theirs) for mine, theirs in zip(model.parameters(), before, strict=True))
    step(accelerator, model, optimizer)
    assert all(torch.equal(mine.cpu(), theirs) for mine, theirs in zip(model.parameters(), once, strict=True))


def step(accelerator, model, optimizer):
    ids = torch.arange(16, device=accelerator.device)[None]
    accelerator.backward(model(input_ids=ids, labels=ids).loss)
    optimizer.step()
    optimizer.zero_grad()


def test_the_state_has_the_layout():
    layout = TrainingNeuronConfig(gradient_checkpointing=True)
    accelerator = NeuronAccelerator(trn_config=layout)
    assert accelerator.trn_config is accelerator.state.trn_config is layout
    assert NeuronAcceleratorState().trn_config is layout and AcceleratorState().device.type == "neuron"


def test_gradient_checkpointing_is_enabled(llama):
    accelerator = NeuronAccelerator(trn_config=TrainingNeuronConfig(gradient_checkpointing=True))
    assert accelerator.prepare(copy.deepcopy(llama)).is_gradient_checkpointing
    with pytest.raises(ConfigError):
        accelerator.prepare(torch.nn.Linear(2, 2))


def test_arguments_without_effect_are_reported(caplog):
    caplog.set_level(logging.INFO, "optimum_neuron.trainer.accelerator")
    NeuronAccelerator(zero_1=True, autocast_backend="xla", gradient_accumulation_steps=2)
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"mixed_precision": "fp16"},
        {"autocast_backend": "cuda"},
        {"trn_config": TrainingNeuronConfig(tensor_parallel_size=2)},
        {"trn_config": TrainingNeuronConfig(fsdp=True)},
        {"trn_config": TrainingNeuronConfig(sequence_parallel_enabled=True)},
    ],
)
def test_what_cannot_be_had_is_an_error(options):
    with pytest.raises(ConfigError):
        NeuronAccelerator(**options)


def test_arguments_come_from_words_and_files(tmp_path):
    options = {"output_dir": str(tmp_path), "learning_rate": 0.5, "enable_mfu_metrics": True, "warmup_ratio": 0.25}
    words = [f"--output_dir={tmp_path}", "--learning_rate=0.5", "--enable_mfu_metrics", "--warmup_ratio", "0.25"]
    (tmp_path / "arguments.json").write_text(json.dumps(options))
    (tmp_path / "arguments.yaml").write_text(
        "\n".join(f"{name}: {json.dumps(value)}" for name, value in options.items())
    )
    parser = HfArgumentParser(NeuronTrainingArguments)
    found = [
        *parser.parse_args_into_dataclasses(words),
        *parser.parse_json_file(str(tmp_path / "arguments.json")),
        *parser.parse_yaml_file(str(tmp_path / "arguments.yaml")),
        *parser.parse_dict(options),
    ]
    for arguments in found:
        assert isinstance(arguments, NeuronTrainingArguments)
        assert (arguments.learning_rate, arguments.enable_mfu_metrics, arguments.warmup_steps) == (0.5, True, 0.25)


def test_processes_divide_the_optimizer(llama, tmp_path):
    llama.save_pretrained(tmp_path / "model")

    def run(num_processes, *words):
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(num_processes)]
            + ["-m", "tests.trainer.accelerated", str(tmp_path), str(tmp_path / "model"), *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPTIMUM_NEURON_INSTANCE": "trn1.32xlarge"},
        )
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / f"{num_processes}-{bool(words)}.json").read_text())

    one, copies, split = run(1), run(2), run(2, "zero_1")
    for two in (copies, split):
        assert two["device"] == "neuron" and two["losses"] == pytest.approx(one["losses"], rel=1e-4)
        assert two["norms"] == pytest.approx(one["norms"], rel=1e-3)
    assert copies["states"] == one["states"] and split["states"] < 0.6 * one["states"]
